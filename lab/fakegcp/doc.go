// Package fakegcp is the part of Google Cloud's control plane that Terraform's
// google provider needs to apply deploy/terraform on one machine, without an
// account.
//
//	fake, err := fakegcp.Start(fakegcp.Options{Project: "demo", Number: "123456789012", PubSub: "http://" + pubsub.Addr()})
//	defer fake.Close()
//	cmd := exec.Command("terraform", "apply")
//	cmd.Env = append(cmd.Env, fake.Environment()...)
//
// # Behaviour
//
// It keeps resources as the JSON that they were created with, and adds the
// fields that the service would add (api.go lists the services, resource.go has
// the life of a resource, and each service has a file). A real Pub/Sub behind
// it keeps topics, subscriptions and schemas (pubsub.go). Operations are done
// when they are answered. A run of a Cloud Run job really runs, if
// [Options.Execute] is set. A service's new revision is ready if
// [Options.Start] succeeds. Otherwise the change fails, as it does for a
// revision that mounts a secret without a version or without a grant.
//
// # Refusals
//
// It refuses requests that the real services refuse and Terraform's own checks
// let pass: resources of a service that is not enabled yet, grants to service
// accounts or of roles that do not exist, Cloud Run jobs and workers with a
// secret that has no version or no grant for them, reserved variables, and too
// little CPU if CPU is always allocated. Any request that it does not know is
// an error that names the request, never a silent success.
//
// # Records
//
// [Server.Requests] returns all requests for a change, [Server.Grants] the
// grants at the end, [Server.Remaining] the resources that are left.
//
// It does not evaluate permissions of callers, quotas, or conditions of grants,
// and does not know prices.
package fakegcp
