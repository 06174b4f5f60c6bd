// Package localpubsub is a local Google Cloud Pub/Sub that keeps the documented
// semantics, the unpleasant ones included, and fails on demand.
//
//	server, err := localpubsub.Start(localpubsub.Options{})
//	defer server.Close()
//	os.Setenv("PUBSUB_EMULATOR_HOST", server.Addr()) // for cloud.google.com/go/pubsub
//
// # Model
//
//	Publish ──▶ topic ──▶ subscription ──────────────────▶ holder ──▶ client
//	            id, time,  │ log: all it keeps              stream or
//	            order,     │ ready: without ordering key    unary pull,
//	            schema,    │ key queues, each with cursor   flow control
//	            retention  │ timers: leases, backoffs
//	               │       └─ after too many failures ──▶ dead letter topic
//	               └─▶ snapshots
//
// A topic (topic.go) gives each message its id and place and hands it to its
// subscriptions. A subscription (subscription.go) keeps an entry per message
// (entry.go) until it is acknowledged or past its retention. Messages without
// ordering key wait in one queue; each ordering key has its own (keyqueue.go),
// with a cursor that goes back when a message must be delivered again. A holder
// (holder.go) is whoever is sent messages: a stream (stream.go) or one unary pull
// (pull.go). What it was sent is leased to it; acknowledgement, nack, deadline and
// backoff (delivery.go, ack.go) say what becomes of it, and in the end the dead
// letter topic (deadletter.go). A seek (seek.go) rebuilds the subscription from
// what it, its topic or a snapshot (snapshot.go) has kept.
//
// # Guarantees
//
// Those of the service: what was accepted is delivered at least once within its
// retention; messages of one ordering key that were published one after the other
// come in that order on an ordered subscription, and a redelivery of one brings
// all later ones of its key again; an exactly-once subscription delivers nothing
// while it is leased or once it is acknowledged. Each place that decides something
// names the page that documents it.
//
// Beyond the service: a message's publish time never goes backwards within a
// topic. Not served: push, export to other products, message transforms, Avro
// schemas; asking for one is UNIMPLEMENTED and names the field.
//
// # Faults and time
//
// [Server.SetFaults] makes calls slow, late, lost or refused, deliveries repeated
// or reordered, streams break; the same seed and traffic meet the same faults. A
// [Clock] can be put forward for leases, backoff and retention. Another process
// reaches both over HTTP at the same port (control.go).
//
// # Memory and file
//
// Messages live in memory, as bytes, once, however many subscriptions keep them;
// [Options] bounds them. Without a file, everything is gone with the process.
//
// With one (journal.go), a server goes on where the last that had the file ended,
// however that ended: with topics, subscriptions, snapshots, schemas and their
// revisions, policies, messages under their ids, and what each subscription has
// acknowledged of them. A kill loses nothing that was answered. A loss of power may
// lose the last moments, as nothing waits for the disk. What was out on lease comes
// again; leases, counts of failures, faults and what a clock was put forward are
// not kept, and a restart counts as use of a subscription that would expire.
package localpubsub
