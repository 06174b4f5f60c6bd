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
// Measured on Postgres 15 and 2 cores: a claim of 100 new events of as many
// aggregates, medians, as multiples of the same claim on an empty table. Beside
// it, what this package did before: the oldest row of each aggregate, found by an
// anti-join along a partial index by time.
//
//	                                              Fresh             before
//	empty table                                   1 (3.9 ms)        1 (20 ms)
//	200,000 rows published under a held snapshot  1.0               1,500
//	1,000,000 rows waiting behind 1,000 parked    1.1               400
//	10,000,000 published rows                     1.0
//
// The walk does pay for dead entries, 0.3 s for those 200,000, and for parked
// aggregates, 20 ms for those 1,000: every few seconds, in a statement of its own
// that no new event waits for.
//
// What was tried and left, or left untried for what it would cost:
//
//   - A partial index by time with a cursor in it: rows that commit late fall
//     behind the cursor, and a look back walks over dead entries again.
//   - A table of heads or lanes: a third write in the business transaction, and
//     the same dead entries in its own index.
//   - A lease on each claimed row: one more version of every row in the table.
//   - No index on pending rows, so that marking them touches none: then the
//     relay's start, or one parked event, costs a scan of all that is kept.
//   - Planning each claim anew, by the statistics of the moment: a claim of one
//     event takes 3 ms instead of 0.3, which at low load is most of what a relay
//     costs and a good part of how long an event waits. The plans are kept by the
//     session now. So that one which was made while the table was small does not
//     read all of a large one, each is made as if there were no way but indexes.
//   - Trust in statistics: when they say that nothing is pending, every partial
//     index looks free, and a join of two tables that look empty may be any join.
//     So each partial index fits one query only, rows are looked up one by one
//     (LATERAL) or named in arrays, and the service's role has jit off: compiling
//     a claim took 200 ms.
package queue
