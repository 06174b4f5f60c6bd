// Package inbox applies events to a read model, each once and forward only: the
// idempotent consumer (Richardson, "Microservices Patterns", 2018) over
// StreamingPull.
//
//	      ┌──────── Receive: parse, decode, queue, return at once
//	      ▼
//	gather what is there ─▶ order by (aggregate, version)
//	      │
//	      ▼ one transaction
//	inbox rows ─▶ look at the rows ─▶ Decide ─▶ one write ─▶ commit ─▶ ack, wake readers
//	      │                              │          │
//	 done before?                       gap       error
//	  duplicate:                         │          │
//	     ack                             │          └▶ halve the batch until the event is alone
//	                                     ▼                  │
//	              hold the aggregate, ask its owner,        ├▶ try again later, up to 5 times
//	              continue                                  └▶ dead letter
//
// A service brings a Handler: Each makes one of a function for one event, Rows
// one of a look and a write for many, Route joins several.
//
// # Why dedup and effect share a transaction
//
// The inbox row and the effect commit together, and the ack follows. A crash
// before the commit leaves neither, and the message comes again; a crash after
// it leaves both, and the redelivery finds the row. A row that is done
// short-circuits, whichever instance wrote it; a concurrent one waits on the row
// until that is known. Versions guard the effect a second time, for the day
// when inbox rows have been purged (32 days after they came, which is longer
// than Pub/Sub can replay).
//
// # Order
//
// Delivery order is not relied upon: a redelivery repeats acknowledged
// successors, dead letters and nacks break it, two instances overtake each
// other. Decide compares versions under the row's lock. After a Gap the
// aggregate is held: its later events queue up behind, its owner is asked for
// the present state, outside of any transaction, and then the queue continues,
// most of it stale. While the owner is away the gap stays open, in a metric and
// in the inbox row; nothing is skipped.
//
// # Another history
//
// An owner that loses commits (a failover, a restore) makes their versions again.
// Within one epoch Decide knows an event of another history than the row's: another
// event of the row's version, a direct successor of another event, a lower version of
// a later time or a higher one of an earlier time. That is Diverged, and goes the way of a gap: the owner's state is
// taken, by the rule Adopt, whatever its version.
//
// What becomes of the event then is for Has to say, by the owner's answer:
//
//	the owner has it, or went beyond     stale
//	another event of its version         lost
//	is lower, and changed after it       lost
//	is lower, 30 seconds after it        lost
//	is lower, and may be a replica       held, and the owner is asked again
//	does not know the aggregate          dead letter: another owner, or a lost creation
//
// A lost event is acknowledged and counted. A service without event ids or times in
// its rows has Positions without them, and is told of nothing.
//
// # Identity
//
// An event is its id, aggregate and version together. A row of the inbox has the id
// as its key, and every statement compares the rest: of two events with one id the
// second is a permanent error, in whatever status the first is. A key of all of them
// would let both be applied; it takes 115 bytes of index for a row instead of 59, of
// 329 instead of 273 in all, and 1.16 times as long to write, and no release before
// could run beside it, whose statements name the key that they conflict with.
//
// # Whose fault
//
// An outage (connection, failover, deadlock, a missing grant or migration) is
// waited out with the messages in hand. The client keeps their leases, flow
// control stops the pull, nobody's attempts are spent. What runs into a time limit
// while the database answers is no outage: the batch is halved. An event's own
// failure is counted in its inbox row; at the fifth, at once when the handler says
// eventing.Permanent, and without trying when it cannot be decoded, the message
// is published to `<subscription>.dlq` with its reason, the row becomes dead, and
// the message is acknowledged. Those behind it in its aggregate wait until then.
//
// What ends the process spends attempts that nobody lives to count. So an event
// that comes again is written down before it is applied, and one that was
// written down before is applied alone; after three of these it is dead-lettered
// like any other poison (Consumer.process has the details).
//
// # Nacks
//
// A held or failing event is not nacked while the consumer runs: on an ordered
// subscription a nack redelivers everything behind it, and emulators reorder it.
// It is retried from memory, its lease kept. Only what is beyond 5,000 held
// messages is given back, after a pause that grows with the broker's count of
// deliveries, so that a subscription without a retry policy does not bring it
// again at once. That leaves as much again for whatever flows.
//
// # Bounds
//
// The client holds at most 10,000 messages and 64 MiB, with leases for up to a
// day, and stops pulling beyond; a transaction has at most 1,000 events and 30
// seconds; 16 repairs and burials go on at once.
//
// # Locks
//
// Every batch takes its locks in the same order: inbox rows by event id, then
// the read model's rows by aggregate. Two consumers with overlapping batches
// wait for each other, but not in a circle.
//
// # Exactly-once subscriptions
//
// Pub/Sub's exactly-once is about acks, not effects. The results of acks are
// looked at: one that was refused is counted and logged, and its message, which
// comes again, is a duplicate.
//
// # Shutdown
//
// The transaction in hand gets three seconds, everything else is given back. The
// broker may hand a message that was given back to the very stream that is
// closing; it then comes again only when that lease ends, up to a minute later. A
// retry policy on the subscription keeps it from being that quick.
//
// # Crash points
//
//	received, not applied      the lease lapses, it is delivered again
//	begun, not applied         as above, and its row counts one beginning
//	applied, not committed     as above: nothing was written
//	committed, not acked       delivered again, found done, acked
//	dead letter published      published again at the next delivery: a dead
//	  but the row not written  letter may be there twice, none is lost
package inbox
