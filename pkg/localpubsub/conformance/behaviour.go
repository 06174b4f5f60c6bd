// Package conformance says what Google documents of Pub/Sub, as behaviours that
// run against any server that speaks its API: [Behaviours].
//
// A behaviour states one documented thing, names the page that documents it, and
// tries it with resources of its own, so that all of them can run at once. A
// [Subject] is a server; what it is known to do otherwise stands in its
// [Departure] list, with the reason. Listed departures run as well, so that one
// that got mended is noticed.
//
//	Behaviours ─▶ Run(subject) ─▶ []Outcome ─▶ a test, or the table of cmd/conformance
//
// Behaviours speak the wire protocol where they are about it, without the
// client's retries and buffers, and the Go client where a user would. They wait
// for messages and deadlines and never judge how fast a server is: a redelivery
// may come late, but not early. What cannot be tried within seconds is not here:
// retention running out, expiry of idle subscriptions.
package conformance

// Behaviour is one documented thing that Pub/Sub does.
type Behaviour struct {
	// Name is a short sentence in lower case, unique among all.
	Name string
	// Area groups behaviours: "ordering", "leases".
	Area string
	// Source is the address of the documentation that says so.
	Source string

	try func(t *trial)
}

// area is a group of behaviours, all with the file that holds them.
type area struct {
	name       string
	behaviours []Behaviour
}

// Behaviours lists all, area by area.
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

// page is the address of a page of the documentation.
func page(name string) string { return documentation + name }

// rpc is the address of a message or method in the API's reference, which is
// generated from the comments in pubsub.proto and schema.proto.
func rpc(name string) string {
	return documentation + "reference/rpc/google.pubsub.v1#google.pubsub.v1." + name
}
