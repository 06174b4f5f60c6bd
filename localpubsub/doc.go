// Package localpubsub is a local Google Cloud Pub/Sub. It keeps the documented
// semantics, including the unpleasant ones, and fails on demand.
//
//	server, err := localpubsub.Start(localpubsub.Options{})
//	defer server.Close()
//	os.Setenv("PUBSUB_EMULATOR_HOST", server.Addr()) // for cloud.google.com/go/pubsub
//
// # Model
//
//	Publish ──▶ topic ──▶ subscription ────────────────▶ consumer ──▶ client
//	            id, time,  │ log: all it keeps            stream or
//	            order,     │ ready: without ordering key  unary pull,
//	            schema,    │ key queues, each with cursor flow control
//	            retention  │ timers: leases, backoffs
//	               │       └─ after too many failures ──▶ dead letter topic
//	               └─▶ snapshots
//
// A topic (topic.go) gives each message its id and its place in the order, and
// passes it to its subscriptions. A subscription (subscription.go) keeps an
// entry per message (entry.go) until the message is acknowledged or past its
// retention. Messages without ordering key wait in one queue. Each ordering key
// has its own queue (keyqueue.go), with a cursor that goes back when a message
// must be delivered again. A consumer (consumer.go) is a stream (stream.go) or
// one unary pull (pull.go). Delivered messages are leased to their consumer.
// Acknowledgement, nack, deadline and backoff (delivery.go, ack.go) decide the
// next state of a message. After too many failures a message goes to the dead
// letter topic (deadletter.go). A seek (seek.go) rebuilds the subscription from
// the messages that the subscription, its topic or a snapshot (snapshot.go) has
// kept.
//
// This package is the broker and its API. The inner packages do not import it:
// filter and schema (the languages of filters and schemas), iam (policies),
// transcoding (REST), resource (the rules of names, pages, masks and
// configurations) and protocolmux (gRPC and HTTP on one port).
//
// # Guarantees
//
// The guarantees are those that Google documents. Each accepted message is
// delivered at least once within its retention. Messages of one ordering key
// that were published one after the other arrive in that order on an ordered
// subscription. A redelivery of a message is followed by redeliveries of all
// later messages of its key. An exactly-once subscription does not deliver a
// message while it is leased or after it is acknowledged. Code that decides one
// of these guarantees names the page that documents it.
//
// This server adds one guarantee: publish times never go backwards within a
// topic. It does not serve push, export to other services, message transforms
// and Avro schemas. A request for one of these fails with UNIMPLEMENTED and
// names the field.
//
// # Faults and time
//
// [Server.SetFaults] makes calls slow, late, lost or refused, repeats or
// reorders deliveries, and breaks streams. With the same seed and the same
// traffic, the same faults strike. A [Clock] can be advanced, which advances
// leases, backoff and retention. Another process controls both over HTTP at the
// same port (control.go).
//
// # Memory
//
// Each message is kept in memory once, as bytes, however many subscriptions
// keep it. The field MaxBytes of [Options] bounds the total. All state is lost
// when the process ends. A new server at the old address knows no topic, so its
// users create their resources again. Message ids start at the machine's time
// in microseconds, so that a consumer does not take a message of the new server
// for a message of the old one.
package localpubsub
