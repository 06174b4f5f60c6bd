// Package fakegcp imitates a part of Google Cloud's control plane. With it, Terraform's google
// provider can apply deploy/terraform on one machine, without an account.
//
//	fake, err := fakegcp.Start(fakegcp.Options{Project: "demo", Number: "123456789012", PubSub: "http://" + pubsub.Addr()})
//	defer fake.Close()
//	cmd := exec.Command("terraform", "apply")
//	cmd.Env = append(cmd.Env, fake.Environment()...)
//
// # Behaviour
//
// The fake keeps each resource as the JSON that created it, and adds the fields that the service
// would add. api.go lists the services. resource.go handles the life of a resource. Each service
// has its own file. A local Pub/Sub behind the fake keeps topics, subscriptions and schemas
// (pubsub.go). An operation is done when the fake answers. A run of a Cloud Run job really runs if
// [Options.Execute] is set. A new revision of a service is ready if [Options.Start] succeeds. If it
// fails, the change of the service fails. The change also fails if the revision mounts a secret
// that has no version or no grant.
//
// # Refusals
//
// The fake refuses some requests that the real services refuse and that Terraform's own checks
// accept:
//
//   - resources of a service that is not enabled yet
//   - grants to service accounts that do not exist, and grants of roles that do not exist
//   - Cloud Run jobs and workers with a secret that has no version, or no grant for them
//   - reserved environment variables
//   - too little CPU if the CPU is always allocated
//
// If the fake does not know a request, it returns an error that names the request. It never answers
// such a request with a success.
//
// # Records
//
// [Server.Requests] returns all requests for a change. [Server.Grants] returns the present grants.
// [Server.Remaining] returns the names of the resources that are left.
//
// The fake does not check the permissions of callers, quotas, or the conditions of grants. It does
// not know prices.
package fakegcp
