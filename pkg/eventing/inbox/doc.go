// Package inbox applies events to a read model, each once and forward only: the
// idempotent consumer (Richardson, "Microservices Patterns", 2018) over
// StreamingPull.
//
//	Receive: parse, decode, queue, return at once
//	      │
//	      ▼
//	gather messages ─▶ order by (aggregate, version)
//	      │
//	      ▼ one transaction
//	inbox rows ─▶ read the rows ─▶ Decide ─▶ one write ─▶ commit ─▶ ack, wake readers
//
// A service brings a Handler. Its Apply takes one event at a time (Each), or one read and
// one write for many (ApplyChanges, over the service's Rows). Route joins the handlers of
// several types.
//
// Files, in the order of an event:
//
//	consumer.go      Consumer: receives messages and gathers batches
//	stream.go        opens the streams, within the budget of budget.go; pulls.go receives of them
//	delivery.go      a message in hand, decoded by the Handler of handler.go, or of route.go
//	turns.go         shares a batch out by tenant
//	apply.go         runs the transaction of a batch, or of its halves
//	crashloop.go     records starts of events that may end the process
//	store.go         every statement on inbox rows
//	rows.go          moves the read model's rows by the rule in decide.go
//	acks.go          acks after the commit, nacks at the end of the process
//
// For events that are not applied: fault.go has the cause of an error, blocked.go the blocked
// aggregates, repair.go asks the owner, owner.go judges the owner's answer, unknown.go waits for
// a newer build, deadletter.go publishes dead letters. maintain.go deletes old rows;
// options.go has the settings, telemetry.go the metrics, trace.go the spans.
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
//	      ├─ a lock, or a time limit that     │
//	      │    others meet too ─▶ blocked,    │
//	      │    a pause ───────────────────────┤
//	      ├─ failed ─▶ blocked, a pause ──────┘
//	      └─ failed for the last time, or permanent
//	            └─▶ blocked ─▶ dead letter published ─▶ row dead ─▶ acked
//
// Later events of a blocked aggregate wait behind its head. At the end of the process
// each state ends in a nack, but for the transaction in hand, which gets 3 s.
//
// # Why dedup and effect share a transaction
//
// The inbox row and the effect commit together, and the ack follows. A crash
// before the commit leaves neither, and the message comes again; a crash after
// it leaves both, and the redelivery finds the row. A row that is done
// short-circuits, whichever instance wrote it. While another transaction has the row,
// a concurrent duplicate waits until that one has ended. Versions guard the effect a
// second time, for the day when inbox rows have been purged (32 days after they came
// unless Options say otherwise, which is longer than Pub/Sub can replay; those of every
// consumer).
//
// # Offsets
//
// With Options.Checkpoints a batch also saves its offset, the greatest publish time of its
// messages, in the same transaction and round trip: see package checkpoint, also for the
// reason why no consumer seeks by it.
//
// # Order
//
// Delivery order is not relied upon: a redelivery repeats acknowledged
// successors, dead letters and nacks break it, two instances overtake each
// other. Decide compares versions under the row's lock. After a Gap the
// aggregate is blocked: its later events queue up behind, its owner is asked for
// the present state, outside of any transaction, and then the queue continues,
// most of it stale. While the owner is unavailable the gap stays open, in a metric and
// in the inbox row; no event is skipped.
//
// A repair waits until a second has passed since the one before, of the same
// aggregate: a producer that leaves out versions costs its owner a call a second.
// Later events queue up behind meanwhile, and most are stale afterwards.
//
// # Another history
//
// An owner that loses commits (a failover, a restore) makes their versions again.
// Within one epoch Decide knows an event of another history than the row's: another
// event of the row's version (by its time, where the id of either is unknown), a direct
// successor of another event, a lower version of a later time or a higher one of an
// earlier time. That is Diverged, and is treated like a gap: the row takes the owner's
// state, by the rule Adopt, also one of a lower version.
//
// Has then decides about the event, by the owner's answer:
//
//	the owner has it, or went beyond     stale
//	another event of its version         lost
//	is lower, and changed after it       lost
//	is lower, 30 seconds after it        lost
//	is lower, and may be a replica       blocked, and the owner is asked again
//	is of a lower epoch                  the same: a former owner, or a restored one
//	                                     whose operator has not begun an epoch yet
//	contradicts it, but is of before it  the same: that may be a former primary;
//	                                     lost 30 seconds after it
//	does not know the aggregate          blocked, and the owner is asked again
//	does not know it, 30 seconds after   dead letter: another owner, or a lost creation
//
// A lost event is acknowledged and counted. A service without event ids or times in
// its rows has Positions without them, and no event of it is Diverged.
//
// # Identity
//
// An event is its id, aggregate and version together. A row of the inbox has the id
// as its key, and every statement compares the rest: of two events with one id the
// second is a permanent error, in each status of the first. A key of all of them
// would let both be applied; it takes 115 bytes of index for a row instead of 59, of
// 329 instead of 273 in all, and 1.16 times as long to write. The release before could
// not run at the same time, because its statements name the key of their conflict.
//
// # Cause of an error
//
// Consumer.classify decides it, for every error of a transaction.
//
// An outage (connection, failover, deadlock, a missing grant or migration) is
// waited out with the messages in hand. The client keeps their leases, the budget
// fills up, and no event's attempts are spent.
//
// A time limit is an outage too when the smallest write does not pass in time
// either: a database that answers SELECT 1 may not take writes. So it is when the
// process stood still meanwhile (stopped, or without CPU). Otherwise the batch is
// halved. The time limit counts against the event that is alone, unless events of three
// aggregates in a row have met a time limit with no success in between.
//
// A lock of another transaction (SQLSTATE 55P03) halves the batch, which waits a
// second for it, the halves less. Then it blocks the aggregate of the event that
// is alone, which is tried again after pauses of up to 30 s, for as long as it
// takes. It spends no attempts.
//
// An event's own failure is counted in its inbox row; at the fifth (MaxAttempts), at once when
// the handler says eventing.Permanent, and without trying when it cannot be
// decoded, the message is published to `<subscription>.dlq` with its reason, the
// row becomes dead, and the message is acknowledged. Those behind it in its
// aggregate wait until then.
//
// If Decode returns ErrUnknown, the event is poison, or the build is older than its
// producer's. The event is blocked until there are ten times as many known events as
// aggregates with unknown ones, or for ten seconds if fewer than ten aggregates are blocked; then
// it is dead-lettered.
// While ten aggregates or more are blocked so, and known events do not outnumber them,
// none of them is dead-lettered: an error in the log shows it, and
// `inbox_blocked_aggregates{reason="unknown"}`. The next build finds all their events. A
// new type of event that is rare among known ones is dead-lettered by an old build: deploy
// the reader first.
//
// # Settings and hooks
//
// Options have the attempts and the pauses. Each bound keeps a promise: an event's last attempt
// comes while the client still keeps its lease, and the consumer shows every minute
// that it is alive. The pause for a lock is no setting, because each try costs all
// events minLockWait.
//
// OnDeadLetter and OnDiverged observe dead letters and divergences besides metrics and log,
// at most once, outside of transactions: package hook has the contract.
//
// # Crash loops
//
// An event that ends the process uses up an attempt, but the process cannot count it any
// more. So the start of an event that may do that is recorded before it is applied
// (crashloop.go), in the column begun. To record every start would cost a commit per batch.
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
// An event that shared a batch with the faulty one is counted once; applied alone, it
// succeeds. A start is unclean if another instance of the consumer has not written its
// end (table inbox_runs): it was killed, or is a neighbour that is alive, which costs a
// commit per batch for these 2 minutes.
//
// # Blocked aggregates
//
// The first event of a blocked aggregate, its head, is always worked on: repaired,
// tried again or dead-lettered, however much is blocked. Repairs and dead letters have 16
// slots each, so that an owner that hangs delays no dead letter.
//
// While the process runs, no message is nacked: on an ordered subscription a nack
// redelivers everything behind it, and each redelivery counts towards the subscription's
// own dead-letter policy. Every message is acked or nacked once, also one that joins an
// event in hand.
//
// # Tenants
//
// The messages in hand are taken into batches by round robin over their tenants, 16 of one
// at a time. While messages of two tenants were met within a minute, a batch has 100
// messages in place of 1,000, so that a message waits for less. The order of the broker's
// own backlog is the relay's concern: see package outbox.
//
// # Bounds
//
// A budget counts the messages in hand, from callback to ack: 10,000 messages, and 64
// MiB with the data counted twice, as received and as decoded. At the bound, callbacks
// wait. (The client's own flow control ends when a callback returns, and the server's
// counts by stream: after each broken stream there is as much again. So [Streams] opens
// each stream for the rest of the budget, and reopens it when twice as much is free. A
// stream that is opened without room is for one message, which waits in its callback.)
// In addition, callbacks that wait have at most half of the budget, which is the limit
// of a stream and of the client, and one response of 20 MiB is being decoded.
//
// Blocked aggregates have their messages in hand. When they use up the budget, the
// consumer stops pulling until one of them continues: other messages wait at the
// broker, neither lost nor counted. `inbox_in_flight_messages` and
// `inbox_in_flight_bytes` show that.
//
// The client keeps leases for up to a day. The broker delivers a message that is held
// longer once a day, and the consumer joins it to the held one. Only the end of a
// process and a stream that breaks during a delivery make the broker count more.
//
// A transaction has at most 1,000 events and 30 seconds.
//
// # Locks
//
// Every batch takes its locks in the same order: inbox rows by event id, then
// the read model's rows by aggregate. Two consumers with overlapping batches
// wait for each other, but not in a circle.
//
// # Exactly-once subscriptions
//
// Pub/Sub's exactly-once is about acks, not effects. The consumer reads the results of
// acks: a refused ack is counted and logged, and its message, which comes again, is a
// duplicate.
//
// # Shutdown
//
// The transaction in hand gets three seconds, everything else is given back, also what is
// on its way in a stream: with [Streams], the consumer half-closes its streams and reads them
// to their end, for a second at most. Without them the client leaves such messages unread, and
// they come again only when their leases end, up to a minute later. How Pub/Sub itself answers
// a half-close is not documented. The official emulator and the repository's own broker end the
// stream behind what they have sent; with another answer, or none, the end is as without
// Streams.
//
// The broker may send a message that was given back to the very stream that is closing. A
// retry policy on the subscription delays the redelivery, which prevents that.
//
// # Crash points
//
//	received, not applied      the lease expires, it is delivered again
//	begun, not applied         as above, and its row counts one start
//	applied, not committed     as above: nothing was written
//	committed, not acked       delivered again, found done, acked
//	dead letter published      published again at the next delivery: a dead
//	  but the row not written  letter may be there twice, none is lost
package inbox
