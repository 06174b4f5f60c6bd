// Package localpubsub is a local Google Cloud Pub/Sub. It keeps the documented semantics, including
// those that are hard on clients, and it can inject failures.
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
// A topic (topic.go) gives each message its id and its place in the order, and passes the message
// to its subscriptions. A subscription (subscription.go) keeps an entry for each message (entry.go)
// until the message is acknowledged or past its retention. Messages without an ordering key wait in
// one queue. Each ordering key has its own queue (keyqueue.go). The cursor of this queue goes back
// when a message must be delivered again. A consumer (consumer.go) is a stream (stream.go) or one
// unary pull (pull.go). Delivered messages are leased to their consumer. Acknowledgement, nack,
// deadline and backoff (delivery.go, ack.go) decide the next state of a message. After too many
// failures a message goes to the dead letter topic (deadletter.go). A seek (seek.go) rebuilds the
// subscription from kept messages. The subscription, its topic or a snapshot (snapshot.go) has kept
// them.
//
// This package is the broker and its API. The inner packages do not import this package. They are
// filter (the language of filters), schema (the languages of schemas), iam (policies), transcoding
// (REST), resource (the rules of names, pages, masks and configurations) and protocolmux (gRPC and
// HTTP on one port).
//
// # Guarantees
//
// The guarantees are the ones that Google documents. Each accepted message is delivered at least
// once within its retention. An ordered subscription delivers messages of one ordering key in the
// order in which they were published, if they were published one after the other. If a message is
// delivered again, all later messages of its key are delivered again after it. An exactly-once
// subscription does not deliver a message that is leased or acknowledged. Each part of the code
// that decides one of these guarantees names the page that documents the guarantee.
//
// This server adds one guarantee: publish times never go backwards within a topic. It does not
// serve push, export to other services, message transforms or Avro schemas. A request for one of
// these fails with UNIMPLEMENTED, and the error names the field.
//
// # Faults and time
//
// [Server.SetFaults] makes calls slow, late, lost or refused. It also repeats or reorders
// deliveries, and breaks streams. The same seed and the same traffic give the same faults. A
// [Clock] can be advanced, which moves leases, backoff and retention forward. Another process can
// control the faults and the clock over HTTP, at the same port (control.go).
//
// # Memory
//
// Each message is kept in memory once, as bytes, even if several subscriptions keep it. The field
// MaxBytes of [Options] bounds the total. All state is lost when the process ends. A new server at
// the old address has no topics, so its users must create their resources again. Message ids start
// at the machine's time in microseconds. So a consumer does not mistake a message of the new server
// for a message of the old server.
package localpubsub
