// Package queue is the outbox table seen as a queue: the statements with which
// relays find, lease and mark its rows. Package outbox drives them.
//
// # Who owns an aggregate
//
// Claiming rows with SKIP LOCKED alone lets two relays hold two versions of one
// aggregate and send the later first. Ordering by time, sequence or transaction
// id does not help: a lower one can commit later. Versions are assigned under the
// aggregate's row lock, so versions commit in order, and the lowest pending one
// is well defined in every snapshot. That row, the head, is the aggregate's lock:
// FOR UPDATE SKIP LOCKED on it decides between relays, and the lease
// (lock_token, locked_at) is written to it alone. The versions behind it are
// claimed along, without a write.
//
// A row is a head if the version before it is published or gone. A relay that
// finds a row which is not leaves it alone: whoever publishes the one before
// looks, once that is marked, for what follows. It sees whatever was committed
// before its mark; what is committed after that finds the mark.
//
// # Where to look
//
// Fresh asks what was committed since the relay's last snapshot: rows of
// transactions that began after it, and of those that were open in it. That is
// exact, however transactions overlap, and touches no row that is older. Walk
// goes from head to head along an index, one probe for each aggregate with
// pending events. It is for what Fresh cannot see: the backlog at the start,
// leases of dead relays, retries that are due, parked events let go by hand.
//
// # What a claim costs
//
// Measured on Postgres 15 and 2 shared cores, 100 new events of as many
// aggregates, the claim's own time:
//
//	                                                Fresh    the oldest row as lock
//	empty table                                     1 x      1 x (20 ms)
//	200,000 rows published under a held snapshot    1.1 x    1,500 x (30 s)
//	1,000,000 rows waiting behind 1,000 parked      1.3 x    400 x (8 s)
//
// What was tried and left:
//
//   - The oldest pending row of each aggregate, found along a partial index by
//     time: the claim walks whatever waits, and over the index entries of rows
//     that were published while some transaction held vacuum up.
//   - The same with a cursor on time or id: rows that commit late fall behind it.
//   - A table of heads or lanes: a third write in the business transaction, and
//     the same dead entries in its own index.
//   - A lease on each claimed row: one more version of each row, at half of the
//     speed.
//   - No index on pending rows, so that marking them touches none: then the
//     relay's start, or one parked event, costs a scan of all that is kept.
//   - Plans kept by the session: one that was made while the table was small reads
//     all of a large one, until the next ANALYZE. Claims are planned each time, in
//     0.3 ms, and the two partial indexes each answer one question only.
//
// The walk does pay for dead entries: 0.1 s for 200,000 of them, every few
// seconds, in a statement of its own that no new event waits for.
package queue
