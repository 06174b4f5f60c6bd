// Package inbox applies each event to a read model once. Events move the rows of the read model
// only forward. The package implements the pattern Idempotent Consumer (Richardson, "Microservices
// Patterns", 2018) over StreamingPull.
//
//	Receive: parse, decode, queue, return at once
//	      │
//	      ▼
//	gather messages ─▶ order by (aggregate, version)
//	      │
//	      ▼ one transaction
//	inbox rows ─▶ read the rows ─▶ Decide ─▶ one write ─▶ commit ─▶ ack, wake readers
//
// A service implements Handler. Its Apply can take one event at a time (Each), or many events
// with one read and one write (ApplyChanges, over the service's Rows). Route combines the
// handlers of several types.
//
// Files, in the order of an event:
//
//	consumer.go      Consumer: receives messages and gathers batches
//	stream.go        opens the streams, within the budget of budget.go
//	openstreams.go   receives the messages of the streams, and ends the streams; away.go notices that none works
//	delivery.go      an event in hand, decoded by a Handler (handler.go)
//	turns.go         shares a batch out by tenant
//	apply.go         applies a batch, or its halves; transaction.go runs the transaction of each
//	crashloop.go     records starts of events that may end the process
//	accept.go        the statements on inbox rows within the transaction of a batch
//	store.go         the other statements on them; maintain.go and crashloop.go have their own
//	rows.go          moves the read model's rows by the rule in decide.go
//	acks.go          acks after the commit, nacks at the end of the process
//
// Files for events that are not applied: fault.go, sqlstate.go and stall.go classify errors, outage.go waits until an outage is
// over, blocked.go keeps the blocked aggregates, repair.go asks the owner, owner.go judges the owner's answer, unknown.go waits
// for a newer build, and deadletter.go publishes dead letters. Other files: topic.go notices that the subscription's topic was
// deleted, maintain.go deletes old rows, options.go has the settings, telemetry.go the metrics, and trace.go the spans.
//
// TestEveryInterleaving tries the rules of decide.go and owner.go in each interleaving of a few steps.
//
// # Life of a delivery
//
//	callback ──────────────────▶ queued ──▶ batch ──commit──▶ acked
//	    room in the budget                  │ ▲   applied, stale, duplicate, lost
//	                                        │ │
//	  gap, or diverged                      │ │
//	    blocked, the owner is asked ◀───────┤ │ an aggregate is unblocked: its head,
//	  unknown type or schema                │ │ and the events behind it
//	    blocked, until it is clear that     │ │
//	    the event is at fault ◀─────────────┤ │
//	  not decodable                         │ │
//	    dead letter, as below ◀─────────────┤ │
//	  outage                                │ │
//	    the batch waits and is repeated ◀───┤ │
//	  any other error                       │ │
//	    two halves, until the event fails   │ │
//	    alone ◀─────────────────────────────┘ │
//	      ├─ a lock, a missing table or grant,│
//	      │    or a time limit, if it is its  │
//	      │    first, or others meet one, too │
//	      │      ─▶ blocked, a pause ─────────┤
//	      ├─ failed ─▶ blocked, a pause ──────┘
//	      └─ failed for the last time, or permanent
//	            └─▶ blocked ─▶ dead letter published ─▶ row dead ─▶ acked
//
// The head of a blocked aggregate is its first event. The later events of the aggregate wait behind
// the head. When the process ends, the running transaction gets 1.8 seconds to finish. All other
// messages in these states are nacked.
//
// # Why dedup and effect share a transaction
//
// The inbox row and the effect are committed together, and the message is acked afterwards. A
// crash before the commit leaves neither, and the message is delivered again. A crash after the
// commit leaves both, and the redelivery finds the row. If the row is done, the event is not
// applied again, whichever instance wrote the row. If another transaction holds the row, a
// concurrent duplicate waits until that transaction has ended.
//
// Versions prevent a second effect even after the inbox row was purged. A consumer purges the
// finished rows of all consumers 32 days after the messages were first received, unless Options say
// otherwise. Pub/Sub can replay the messages of the last 31 days at most.
//
// # Offsets
//
// With Options.Checkpoints a batch also saves its offset, the greatest publish time of its
// messages, in the same transaction and round trip. While messages of blocked aggregates or of
// other tenants wait, the offset is before their first message. The first event of each aggregate that
// waits for long has a held inbox row, and the safe position is before the oldest held row. If that event
// was a dead letter before, its row stays dead or discarded while it waits, because its dead letter is in
// the topic, or an operator has decided about it. Package checkpoint has the details, and the reason why
// no consumer seeks to its offset by itself.
//
// # Order
//
// The consumer does not rely on the order of delivery. A redelivered message comes with its
// successors again, even if these were acknowledged. Dead letters and nacks break the order. Two
// instances overtake each other. So Decide compares versions while the row is locked. After the
// outcome Gap the aggregate is blocked. Its later events queue up, and the consumer asks the owner
// for the present state, outside of any transaction. Then the queued events are applied, and most
// of them are stale. While the owner is unavailable, the gap stays open. A metric and the inbox row
// show the open gap. No event is skipped.
//
// Two repairs of one aggregate are at least a second apart. So if a producer leaves out versions of
// an aggregate, its owner gets at most one call a second for that aggregate. Later events queue up
// between the repairs, and most of them are stale after the next repair.
//
// # Another history
//
// An owner that loses commits (by a failover or a restore) assigns the versions of these commits
// again. Within one epoch, Decide recognizes an event of another history than the row's by one of
// these signs:
//
//   - The event has the row's version, but another id, or another time if either id is unknown.
//   - The event has the next version, but its direct predecessor is another event than the row's.
//   - The event has a lower version than the row and a later time, or a higher version and an
//     earlier time. The time of the next version is compared only if the id of the event before it,
//     or that of the row's event, is unknown.
//   - The event is of another tenant than the row. This sign holds in each epoch.
//
// The times prove this only if the clocks of the instances of the owner differ by less than a failover takes. If the
// clock after a failover is behind the lost changes, a row may keep or take a lost state, also from the
// answer of a former primary, until a later event or package reconcile finds it.
//
// The outcome of such an event is Diverged. The consumer handles Diverged like a gap, but the row
// then takes the owner's state even if that has a lower version. The rule is Adopt.
//
// [Has] and the owner's answer then decide about the event:
//
//	the owner's answer                     the event is
//	has the event, or is beyond it         stale
//	is of another tenant                   lost
//	contradicts the event                  lost, except as follows
//	contradicts the event, but its last    blocked, and the owner is asked again, because the
//	  change was before the event            answer may be from a former primary; lost if the
//	                                         answer is from 30 seconds after the event
//	has a lower version, but its last      lost
//	  change was after the event
//	has a lower version, but is from 30    lost
//	  seconds after the event
//	has a lower version, and may be from   blocked, and the owner is asked again
//	  a replica
//	is of a lower epoch                    blocked, and the owner is asked again, because it is a
//	                                         former owner, or a restored one whose operator has
//	                                         not begun an epoch yet
//	does not know the aggregate            blocked, and the owner is asked again
//	does not know the aggregate, 30        dead letter, because the event has another owner, or
//	  seconds after the event                the creation was lost
//
// A lost event is acknowledged and counted. If a service keeps neither event ids nor times in its
// rows, its Positions have none, and no event is Diverged.
//
// # Identity
//
// An event is identified by its id, aggregate and version together. The key of an inbox row is
// the id alone, and the statements also compare the aggregate and the version. If two events have
// the same id, the second is a permanent error, whatever the status of the first. With a key of id,
// aggregate and version, both events would be applied. A row would then take 115 bytes of index
// instead of 59 (329 bytes instead of 273 in all), and writing it would take 1.16 times as long.
// During an update the previous release could not run next to this one, because its statements name
// the present key in ON CONFLICT.
//
// # Cause of an error
//
// Consumer.classify decides the cause of each error of a transaction.
//
// In an outage (connection, failover, deadlock) the consumer waits with the messages in hand.
// Meanwhile the client extends the leases of these messages, the budget fills up, and no event spends
// an attempt.
//
// The database may lack a table, a column, a function, a type, a unique index or a grant that the
// handler's statement needs, and still take the smallest write. Then perhaps only few events need the
// statement, so the batch is halved. The aggregate of an event that is alone is blocked. The event is
// tried again with pauses of up to 30 s, without spending attempts, until a migration, a grant or a
// release repairs the statement. The same holds if the database has no memory or no room on its disk for
// the statement, or cannot use one of its files. If 200 aggregates (maxFailing) are blocked because their
// events fail, probably all events fail, and such an error counts as an outage. If a statement reaches the
// limit of the temporary files of a session (SQLSTATE 53400), that counts like a time limit.
//
// A time limit also counts as an outage in two cases. In the first case the smallest write does not
// succeed in time either. (A database that answers SELECT 1 may not take writes.) In the second
// case the process did not run meanwhile, because it was stopped or got no CPU. Otherwise the batch
// is halved until an event is alone. The first time limit that the event meets alone spends no attempt, because
// the database, its network or its disk may have stood still, and work again when the limit has passed. From the
// second time limit on, each counts against the event, unless events of three aggregates in a row have met a
// time limit with no success in between. The same holds for a transaction that the database ends as idle
// (SQLSTATE 25P03), for a handler that cannot reach a service of its own (net.Error), and for one that
// ignores its context and returns after the transaction's time.
//
// Any other error that the handler returns without an SQLSTATE is its event's own failure while the
// connection to the database works, even an error such as io.EOF. If the connection is closed, too, an
// error of the network counts as an outage, and any other error like a time limit, because pgx also
// closes the connection when a context ends, and after a value that it cannot encode.
//
// A statement of a handler can also end the server's process of its connection, for example by its memory.
// Then the server ends all other sessions, too, and recovers, which looks like an outage. If the handler's
// statements have broken the connection, a batch is halved. An event that is alone may break two
// connections. Each further broken connection counts like a time limit, once the database takes writes
// again. After its first break alone, the event is the last one of its batch (turns.go), so that no halves
// break connections again.
//
// If another transaction holds a lock (SQLSTATE 55P03), the batch is halved, too. A batch waits a
// second for the lock, or 50 ms if other aggregates wait for locks already. Its parts share a
// second, and so do the tries of the events that were put off (transaction.go). If an event that is alone
// meets the lock, its aggregate is blocked. The event is tried again until the lock is free, with
// pauses of up to 30 s, and spends no attempts.
//
// An event's own failures are counted in its inbox row. The event is dead-lettered at the fifth
// failure (MaxAttempts), at once if the handler returns eventing.Permanent, and without a try if
// it cannot be decoded. The message is published to `<subscription>.dlq` with the reason, the row
// becomes dead, and the message is acknowledged. Later events of the aggregate wait until then.
//
// If Decode returns ErrUnknown, either the event is poison, which no build can read, or this build
// is older than the producer's build. The event blocks its aggregate, and is dead-lettered as
// poison in two cases:
//
//   - The known events that were handled meanwhile are at least ten times as many as the aggregates
//     with unknown events.
//   - The event has waited for ten seconds, and fewer than ten aggregates have unknown events.
//
// While neither case holds, the event stays blocked, and the next build finds it. The metric
// `inbox_blocked_aggregates{reason="unknown"}` counts the blocked aggregates. If there are ten or
// more, the log has an error, too. An old build dead-letters an event of a new type if events of
// that type are rare among known events. So deploy the reader before the producer.
//
// # Settings and hooks
//
// Options set the attempts and the pauses, within bounds. The bounds guarantee that the client
// still keeps an event's lease at its last attempt, and that the consumer shows every minute that
// it is alive. The pause after a lock cannot be set, because each try for a lock may delay all
// events.
//
// OnDeadLetter and OnDiverged report dead letters and divergences, in addition to metrics and
// log. Each call is made at most once, outside of transactions. Package hook has the contract.
//
// # Crash loops
//
// If an event ends the process, the process can no longer count the attempt. So if an event may
// have ended a process, its start is recorded in the column begun before the event is applied
// (crashloop.go). The starts of all other events are not recorded, because that would cost a commit
// per batch.
//
//	delivered the first time, after a clean start ────────────────▶ applied in its batch
//
//	delivered again; or within 2 minutes
//	of an unclean start, where the broker ──▶ begun = 1, applied in its batch
//	does not count deliveries                      │        │
//	                                               │        └─ applied, failed, blocked or
//	                                               │           given back: begun is reset
//	               the process ended, and begun ≥ 1│
//	                                               ▼
//	                       ┌─▶ quarantine: begun + 1, applied alone ── as above: reset
//	                       │             │
//	                       └─────────────┤ the process ended again
//	                                     ▼ begun would be 4
//	                                dead letter: the process ended 3 times
//
// A delivery of an event whose aggregate is blocked is queued, and is no start, because no process
// applies the event then. If another session has locked the event's row, the consumer waits for a
// second at most and does not record the start. The transaction that applies the event meets the
// same lock, and the event is put off.
//
// If another event shared a batch with the faulty event, one start of the other event is counted as
// well. The other event then succeeds when it is applied alone. A start of the consumer is unclean
// if another instance of the consumer has not recorded its end (table inbox_runs). Either that
// instance was killed, or it is a neighbour that still runs. In both cases the consumer records the
// starts of all events for 2 minutes, if the broker does not count deliveries. That can cost a commit
// per batch. Pub/Sub counts the deliveries of a subscription with a dead-letter policy only. A repair
// is not a start, so a repair that ends the process is not counted.
//
// # Blocked aggregates
//
// The consumer works on the head of each blocked aggregate at the same time, however many
// aggregates are blocked. It repairs the aggregate, tries the head again, or dead-letters the head.
// Repairs and dead letters have 16 slots each, so that an owner that hangs delays no dead letter.
//
// While the process runs, no message is nacked. On an ordered subscription a nack would also
// redeliver every message behind the nacked one, and each redelivery counts towards the
// subscription's own dead-letter policy. Every message is acked or nacked once, even if it repeats
// an event in hand.
//
// # Tenants
//
// Batches take the messages in hand by round robin over the tenants, at most 16 messages of one
// tenant at a time. Each tenant has a part in the next batch. If messages of two tenants came within
// the last minute, a batch has at most 100 messages instead of 1,000. So a message waits for a
// shorter transaction. The events of an unblocked aggregate have the same limits. Its first events are a
// batch of their own, and the rest takes turns. The messages that still wait at the broker are in
// the order in which the relay sent them: see package outbox.
//
// # Bounds
//
// A budget bounds the messages in hand, from callback to ack, to 10,000 messages and 64 MiB. The
// data of a message counts twice, as received and as decoded. When the budget is used up, callbacks
// wait. The budget does not count the messages in waiting callbacks. These messages take at most
// half of the budget, because that is the limit of each stream and of the client. One response of
// up to 20 MiB that is being decoded comes on top.
//
// Pub/Sub's flow control does not bound the messages in hand. The client counts a message only
// until its callback returns. The server counts the messages of each stream separately. So after a
// stream breaks, the next stream may bring as many messages again. Therefore [Streams] opens each
// stream for the rest of the budget, and reopens the stream when the budget has room for twice what
// the stream was opened for. If the budget has no room, the stream is opened for one message, which
// waits in its callback.
//
// The messages of blocked aggregates stay in hand. If they use up the budget, the consumer stops
// pulling until one of the aggregates continues. Other messages then wait at the broker. They are
// not lost, and the broker counts no deliveries of them. `inbox_in_flight_messages` and
// `inbox_in_flight_bytes` show how much of the budget is used.
//
// The client takes leases of 30 s at most, and keeps them for up to a day. So the messages of a killed process come
// again within 30 s. For an exactly-once subscription the client's leases are 60 s. If a message is in hand
// for more than a day, the broker delivers it again once a day, and the consumer joins the new message to
// the one in hand. The new message gives its data up and counts in the budget as some 1 KiB and not as a
// message. Apart from that, the broker's delivery count grows only when a process ends, when a stream
// breaks during a delivery, or when the client gives a stream up. The client does so after an error that it
// does not retry, such as PERMISSION_DENIED or NOT_FOUND. For the messages of that stream the client then
// sends neither extensions nor acks, so all messages in hand come again. Their events are found done, or
// join those in hand.
//
// A transaction has at most 1,000 events and takes at most 30 seconds.
//
// # Locks
//
// Every batch takes its locks in the same order: inbox rows by event id, then
// the read model's rows by aggregate. So two consumers whose batches overlap may wait for each
// other, but never cause a deadlock.
//
// # Exactly-once subscriptions
//
// On an exactly-once subscription Pub/Sub confirms or refuses each ack. It does not know whether an
// effect happened once, so the inbox is still needed. The consumer reads the results of acks. It
// counts and logs a refused ack. The message of that ack comes again, and is then a duplicate.
//
// # Shutdown
//
// The running transaction gets 1.8 seconds, and all other messages are nacked. With [Streams]
// these include the messages that are on their way in a stream, because the consumer half-closes
// its streams and reads them to their end, for a second at most. Without Streams the client leaves
// such messages unread, and they come again only when their leases end, up to 30 s later.
// Pub/Sub does not document how it answers a half-close. The official emulator and the repository's
// own broker end the stream after the messages that they have sent. If Pub/Sub answers differently,
// or not at all, the end is the same as without Streams.
// The broker may send a nacked message to the same stream again while the stream closes. To prevent
// that, give the subscription a retry policy, which delays the redelivery.
//
// # Crash points
//
//	received, not applied      the lease expires, and the message is delivered again
//	begun, not applied         as above, and the event's row counts one start
//	applied, not committed     as above: nothing was written
//	committed, not acked       delivered again, found done, acked
//	dead letter published      published again at the next delivery: a dead
//	  but the row not written  letter may be there twice, none is lost
package inbox
