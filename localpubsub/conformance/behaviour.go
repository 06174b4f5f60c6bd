// Package conformance states Google's documentation of Pub/Sub as [Behaviours]. They run against
// any server that has the API of Pub/Sub.
//
// A behaviour states one documented fact, and names the page that documents the fact. It tests the
// fact with its own resources, so that all behaviours can run at the same time. A [Subject] is a
// server under test. Its list of [Departure] values has the known differences from the
// documentation, with the reasons. A behaviour with a listed departure also runs, so that a fixed
// departure is noticed. The exceptions are departures that are harmful.
//
//	Behaviours ─▶ Run(subject) ─▶ []Outcome ─▶ a test, or the table of cmd/conformance
//
// A behaviour about the wire protocol uses the protocol directly, without the client's retries and
// buffers. The other behaviours use the Go client like a user. Behaviours wait for messages and
// deadlines, and never judge the speed of a server. So a redelivery may come late, but not early.
// Facts that cannot be tested within seconds are not covered. These are the end of retention and
// the expiry of idle subscriptions.
package conformance

// Behaviour is one documented fact about Pub/Sub.
type Behaviour struct {
	// Name is a short sentence in lower case. No two behaviours have the same
	// name.
	Name string
	// Area is the group of the behaviour, such as "ordering" or "leases".
	Area string
	// Source is the address of the page that documents the fact.
	Source string

	try func(t *trial)
}

// area is a group of behaviours. The behaviours of an area are in one file.
type area struct {
	name       string
	behaviours []Behaviour
}

// Behaviours returns all behaviours, area by area.
func Behaviours() []Behaviour {
	var all []Behaviour
	for _, a := range []area{
		topics(), subscriptions(), subscriptionUpdates(), publishing(), limits(), streaming(), flowControl(), unaryPull(), leases(),
		ordering(), exactlyOnce(), retries(), deadLetters(), filters(), seeking(), snapshots(), schemas(), schemaRevisions(),
		permissions(), client(),
	} {
		for _, b := range a.behaviours {
			b.Area = a.name
			all = append(all, b)
		}
	}
	return all
}

const documentation = "https://cloud.google.com/pubsub/docs/"

// page returns the address of a page of the documentation.
func page(name string) string { return documentation + name }

// rpc returns the address of a message or method in the API's reference, which
// is generated from the comments in pubsub.proto and schema.proto.
func rpc(name string) string {
	return documentation + "reference/rpc/google.pubsub.v1#google.pubsub.v1." + name
}
