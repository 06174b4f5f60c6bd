// Package fakegcp is as much of Google Cloud's control plane as Terraform's google
// provider needs to apply deploy/terraform on one machine, without an account.
//
//	fake, err := fakegcp.Start(fakegcp.Options{Project: "demo", Number: "123456789012", PubSub: "http://" + pubsub.Addr()})
//	defer fake.Close()
//	cmd := exec.Command("terraform", "apply")
//	cmd.Env = append(cmd.Env, fake.Environment()...)
//
// # What it does
//
// It keeps resources as the JSON that they were created with, and adds what the
// service would (api.go says which services there are, noun.go how a resource
// lives, and each service has a file). Topics, subscriptions and schemas are kept
// by a real Pub/Sub behind it (pubsub.go). Operations are over when they are
// answered. A Cloud Run job that is run really runs, if [Options.Execute] is given; a
// service's new revision is ready if [Options.Start] says so, and fails the change if
// not, as one does that mounts a secret without a version or without a grant.
//
// # What it refuses
//
// What the real services refuse and Terraform's own checks let pass: resources of
// a service that is not enabled yet, grants to service accounts or of roles that
// do not exist, Cloud Run jobs and workers whose secret has no version or no grant for
// them, reserved variables, too little CPU where it is always allocated, the deletion
// of what is protected.
// Anything that it does not know is an error that names the request, never a
// silent success.
//
// # What it records
//
// [Server.Requests] has all that would have changed something, [Server.Grants] who
// may do what in the end, [Server.Remaining] what is left.
//
// It does not evaluate permissions, quotas, or conditions of grants, and does
// not know what anything costs.
package fakegcp
