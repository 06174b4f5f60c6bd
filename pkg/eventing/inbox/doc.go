// Package inbox applies events to a read model, each once and forward only: the
// idempotent consumer (Richardson, "Microservices Patterns", 2018) over
// StreamingPull.
//
//	      ┌──────── Receive: parse, queue, return at once
//	      ▼
//	gather what is there ─▶ order by (aggregate, version)
//	      │
//	      ▼ one transaction
//	inbox rows ─▶ Handler.Apply for each ─▶ commit ─▶ ack, wake readers
//	      │              │         │
//	 done before?       gap      error
//	  duplicate:         │         │
//	     ack             │         └▶ halve the batch until the event is alone
//	                     ▼                 │
//	           hold the aggregate,         ├▶ try again later, up to 5 times
//	           ask its owner, continue     └▶ dead letter
//
// # Why dedup and effect share a transaction
//
// The inbox row and the effect commit together, and the ack follows. A crash
// before the commit leaves neither, and the message comes again; a crash after
// it leaves both, and the redelivery finds the row. A row that is done
// short-circuits, whichever instance wrote it; a concurrent one waits on the row
// until that is known. Versions guard the effect a second time, for the day
// when inbox rows have been purged.
//
// # Order
//
// Delivery order is not relied upon: a redelivery repeats acknowledged
// successors, dead letters and nacks break it, two instances overtake each
// other. The handler compares versions under the row's lock and answers
// Applied, Stale or Gap. After a Gap the aggregate is held: its later events
// queue up behind, its owner is asked for the present state, and then the queue
// continues, most of it stale.
//
// # Whose fault
//
// An outage (connection, failover, deadlock, timeout) is waited out with the
// messages in hand. The client keeps their leases, flow control stops the pull,
// nobody's attempts are spent. An event's own failure is counted in its inbox
// row; at the fifth, or at once when the handler says eventing.Permanent, the
// message is published to `<subscription>.dlq` with its reason, the row becomes
// dead, and the message is acknowledged. A held or failing event is never
// nacked while the consumer runs: on an ordered subscription a nack redelivers
// everything behind it, and emulators reorder it.
//
// # Locks
//
// Every batch takes its locks in the same order: inbox rows by event id, then
// the read model's rows by aggregate. Two consumers with overlapping batches
// wait for each other, but not in a circle.
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
//	applied, not committed     as above: nothing was written
//	committed, not acked       delivered again, found done, acked
//	dead letter published      published again at the next delivery: a dead
//	  but the row not written  letter may be there twice, none is lost
package inbox
