// Package queue is the outbox table seen as a queue: the statements with which
// relays find, lease and mark its rows. Package outbox drives them.
//
// Files, in the order of an event: queue.go has the types and runs the statements; claim.go
// finds and leases events, claim.sql has its SQL and the rule for a head; settle.go marks
// results and renews leases; purge.go deletes published rows after the retention. Off that
// way: sql.go executes the templates of SQL, snapshot.go compares snapshots, heartbeats.go has
// the table of relays, backlog.go the figures for the metrics. Each has its statements in the
// .sql file of its name.
//
// # Ownership of an aggregate
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
// A row is a head if the version before it is published or gone. A relay leaves a row
// alone that is not a head. The relay that publishes the version before looks for the
// next version after its mark. It sees each version that committed before the mark; a
// version that commits later is a head at once.
//
// Times are the database's. A time in the future counts as none: a lease of more than
// a second ahead, a retry of more than [MaxRetry]. A failover to a host with a slow
// clock leaves such times.
//
// # Where to look
//
// There is no index of pending events: each event would enter and leave it, and dead
// entries stay in an index for as long as a transaction somewhere keeps vacuum away.
// A relay finds each pending event in one of these ways:
//
//   - It is new: ClaimNew asks for rows of transactions that began after the relay's
//     last snapshot, and of those that were open in it. That is exact, however
//     transactions overlap, and touches no row that is older.
//   - It follows an event that the relay has just published: ClaimNew asks for that,
//     too.
//   - It is to be retried, or an operator has released it, or it is behind a retry that
//     is published: next_retry_at is set, and has an index of very few rows.
//     ClaimRetries.
//   - A relay had leased it, or had to skip it, and died. Each relay keeps a row in
//     outbox_relays with its low: a snapshot that saw none of the relay's unfinished
//     events. Heartbeat writes the row every few seconds. A relay that finds an abandoned
//     row deletes it and lowers its own low in one statement, and then reads the rows
//     that the low did not see, by transaction, in pages: Scan.
//
// So at each moment, for each pending event that is neither to be retried nor parked nor
// behind such an event, some row of outbox_relays has a low that did not see it. That
// is true of the database's state, hence also of the state that a failover leaves: a
// relay that meets another server begins again from the least of all lows. A low of
// another cluster (its transactions are in the future here) means the whole table, and
// so does an empty table of relays.
//
// A sweep through the whole table, a page of 1,000 rows every few seconds, finds the
// rest: rows that were changed by hand.
//
// # The shape of the table
//
// Three B-trees, and no column of theirs is ever updated: by id, by (aggregate_type,
// aggregate_id, version), and by (xact, the bytes of id). Partial ones have an entry only
// for a row that is parked, to be retried, or an answer. So the lease and the mark are
// HOT: they write a new version of the row into the row's page, where the fillfactor
// of 50 leaves room, and nothing else. A published row takes twice the space of
// its data for that; the log (which a replica receives and an archive keeps) takes
// less than half of its former size.
//
// Measured on Postgres 15, 20,000 events of 300 bytes, each its own transaction with
// nothing else in it, leased and marked 20 (and 200) at a time, before any vacuum:
//
//	                                              log per event    updates HOT   heap + indexes, per event
//	id, key, new and pending rows (four), ff 90   2,308 (2,582)     8 % (7 %)    1,629 B
//	key, new rows (xact where pending), ff 90     1,871 (2,098)     8 % (7 %)    1,502 B
//	key, new rows (xact, id where pending)        2,122 (2,327)     3 % (0 %)    1,489 B
//	key, all rows (xact, id), ff 90               1,874 (2,191)    37 % (18 %)   1,509 B
//	the same, ff 70                               1,379 (1,712)    72 % (50 %)   1,357 B
//	the same, ff 60                               1,277 (1,346)    80 % (76 %)   1,356 B
//	the same, ff 50                                 996   (994)   100 % (100 %)  1,350 B
//
// The index on id is in the first line only; it costs the others some 170 bytes of log,
// and stays: it refuses an event id that is used twice, and finds the event that a log
// line names. The present table, with that index, costs 1,198 bytes by the relay's own
// statements (write.wal_bytes_per_event of the benchmarks). A table of the
// first line's form takes 2,504 there: that is another run, with 100 events leased and
// marked at a time, and with the columns that the table has today.
//
// # Cost of a claim
//
// A claim costs the rows that it finds, and nothing else in the table. The benchmarks
// compare it with that in an empty table: with 10,000,000 published rows, with 200,000
// published under a long-running transaction, and with 1,000,000 waiting behind 1,000
// parked ones. Every statement that reads dead entries or published rows (a scan, the
// retries, the backlog for the metrics) has its own goroutine and its own time limit:
// no new event waits for it.
//
// Rejected designs, tried or too costly to try:
//
//   - A partial index by time with a cursor in it: rows that commit late fall
//     behind the cursor, and a look back reads dead entries again.
//   - A partial index of pending rows by aggregate, and a scan along it: a fourth tree,
//     no HOT update, and under a long-running transaction 0.4 s for each million rows published
//     since, every few seconds; with 9 million the scan never finished in time.
//   - A table of heads or lanes: a third write in the business transaction, and
//     the same dead entries in its own index.
//   - A lease on each claimed row: one more version of every row in the table.
//   - BRIN on id in place of the tree: in pages that the purge has emptied, each insert
//     would widen its range, which is a write to the log again.
//   - The check that a version is the next one as a function in PL/pgSQL: with 16 writers
//     it took a third of an event's cost, most of it for the call itself. The check is a
//     subquery of the INSERT now. The planner never reads the whole table for it, because
//     the file never has fewer than 64 pages.
//   - CHECK constraints: Postgres parses each of them again for each INSERT and UPDATE.
//     Three of them took a tenth of an event's cost.
//   - The lowest transaction id as a relay's low, rather than a snapshot: one transaction
//     that stays open for hours and has written something would hold it back.
//   - Planning each claim again, by the statistics of the moment: a claim of one
//     event takes 3 ms instead of 0.3, which at low load is most of a relay's cost
//     and a good part of an event's latency. Sessions keep the plans now. A plan that
//     was made for a small table must not read all of a large one, so the planner may
//     use nothing but indexes.
//   - Trust in statistics: if they call the table empty, all joins cost the same, and
//     so do all indexes with the column, in any position. With an index on (xact, id),
//     a lookup of an id read all of that index. So no two full indexes have a column
//     in common, rows are looked up one by one (LATERAL) or named in arrays, and
//     the service's role has jit off: compiling a claim took 200 ms.
package queue
