// Package eventing carries changes from the service that owns them to the
// services that copy them, over Postgres and Pub/Sub.
//
//	 owner                                                    copy
//	┌──────────────────────────┐                  ┌──────────────────────────────┐
//	│ BEGIN                    │                  │ BEGIN                        │
//	│   business row  version n│                  │   inbox row    seen once     │
//	│   outbox row    event n  │                  │   projection   n-1 → n       │
//	│ COMMIT ── relay ┐        │                  │ COMMIT ── ack, wake readers  │
//	└─────────────────┼────────┘                  └──────────▲───────────────────┘
//	           outbox.Relay ── publish, key = aggregate ── inbox.Consumer
//
// # What holds
//
//   - A change and its event commit together or not at all (outbox.Append takes
//     the caller's transaction).
//   - Every committed event reaches the broker at least once. Within an aggregate,
//     version n+1 is never sent for the first time before version n.
//   - The effect of an event is applied once, and no event moves a copy backwards. An event with
//     only a difference is applied only if the copy has the version right before it. If versions
//     are missing, the consumer first repairs the copy from the owner.
//   - A reader that sends the consistency.Token of a write gets nothing older than that write,
//     unless the reader allows stale data.
//
// Delivery is not exactly once. An event may be sent and delivered again, at any time and in any
// order. Repeated and late events do no harm, because each event has a version.
//
// # What the package relies on
//
// A transaction assigns the version of an aggregate while it holds the lock of the aggregate's row.
// So the versions are in the order of the commits. The order of timestamps, sequences or
// transaction ids is not commit order, because a transaction with a lower value can commit later.
//
// Package dbpool configures the caller's pool. Such a pool closes a connection that fails with SQLSTATE 25006
// (read-only transaction). After a failover, connections to the former primary may still be open. On such a
// connection no write succeeds, so the relay makes no progress until the connection is closed.
//
// The library's SQL names tables without a schema. Each service connects as a role whose
// search_path is its own schema, so `outbox` and `inbox` are the tables of that service. A service that
// has tables and a role already keeps both, and the library's tables are in a schema next to its own.
// Package migrate has the migrations that create the tables and the role. A service lists the parts of the
// library that it uses, and gets the migrations of these parts. The library's migrations have
// numbers from 100 to 999. A service numbers its own migrations from 1000 on.
//
// # Reading
//
// The list has the files of the core that decide, some 6,400 lines with their comments, in the order
// in which an event passes through them. Where it names a section of a doc.go, read
// the doc.go up to that section:
//
//	the event         event.go, message.go
//	written           outbox: append.go, insert.go
//	handed over       outbox: handover.go
//	found and leased  outbox/queue: doc.go, claim.go, claim.sql
//	published         outbox: doc.go to "Goroutines", relay.go, scheduler.go, claimer.go,
//	                  inflight.go, publisher.go, settler.go;
//	                  outbox/queue: settle.go, settle.sql
//	received          inbox: doc.go to "Another history", consumer.go, delivery.go
//	applied           inbox: apply.go, transaction.go, accept.go, decide.go, rows.go,
//	                  acks.go
//	repaired          inbox: blocked.go, repair.go, owner.go; projection: projection.go
//	read              consistency: doc.go, token.go, reader.go, waiters.go
//
// In these files look for: the statement with the lease and its condition (insert.go), the events
// that a claim may take (claim.sql), the order of the requests of one aggregate (publisher.go), the one
// transaction of a batch (transaction.go), the test whether an event is new (accept.go), the table of versions (decide.go),
// and the order in which a reader tries the projection, the owner, and older data (reader.go).
//
// The other files of these packages can be read when their subject comes up. In outbox the subjects are
// the tenants (tenants.go, shares.go, held.go, turns.go, turner.go), the pauses of topics (pause.go,
// prober.go), the events that a claim does not see (scanner.go, heartbeat.go), transactions with an
// unknown outcome (unresolved.go), results that could not be written (leases.go), and the work that one
// goroutine leaves for another (followups.go). In inbox the subjects are the causes of errors
// (fault.go), the rows of failed events (store.go), crash loops (crashloop.go), events of a newer
// release (unknown.go), and streams with their budget (stream.go, openstreams.go, budget.go). Each other
// package can be read by itself.
//
// # Examples
//
// go test runs each example, with a real Postgres and a local Pub/Sub where the example needs them.
//
//	the whole way, from commit to copy          eventing             Example
//	consume and emit in one transaction         eventing             Example (ConsumeAndEmit)
//	events and messages                         eventing             Event.Message, Event.Validate, ParseMessage
//	an error that no retry can fix              eventing             Permanent
//	a change and its event                      outbox               Append, Append (VersionTaken)
//	a relay                                     outbox               Relay
//	settings and hooks of a relay               outbox               Options
//	a consumer with a handler                   inbox                Consumer, Handler
//	settings and hooks of a consumer            inbox                Options
//	handlers of several types                   inbox                Route
//	the rules by which a row moves              inbox                Decide, Adopt
//	a projection with repair from its owner     projection           Projection, Call
//	a fresh read: wait, then ask the owner      consistency          Reader.Read, Waiters.Wait
//	tokens and requirements                     consistency          Parse, Merge, Request.Requirement
//	a caller's session                          session              Example, Session
//	an idempotent write                         txn                  Writer.Write
//	LISTEN and NOTIFY                           notify               Notifier
//	the library's tables in a service's schema  migrate              Schema
//	an operator and the outbox                  operator/backlog     Backlog.Retry
//	an operator and the dead letters            operator/deadletter  Batch.Redrive
//	metrics                                     instrument           Meter.Counter
//	pauses between tries                        backoff              Example, Sleep
package eventing
