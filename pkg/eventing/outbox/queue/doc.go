// Package queue uses the outbox table as a queue. It has the statements with which relays
// find, lease and mark the rows of the table. Package outbox calls them.
//
// Files, in the order in which an event passes through them: queue.go has the types and runs the
// statements. claim.go finds and leases events. claim.sql has the SQL of claim.go and the rule for
// a head. settle.go marks results and renews leases. purge.go deletes published rows after the
// retention. The other files are these: sql.go executes the SQL templates, snapshot.go compares
// snapshots, heartbeats.go writes the table of relays, and backlog.go reads the figures for the
// metrics. The SQL of claim.go, settle.go, purge.go, heartbeats.go and backlog.go is in .sql files.
//
// # Ownership of an aggregate
//
// If relays only claimed rows with SKIP LOCKED, two relays could hold two versions of one aggregate
// and send the later one first. Ordering by time, sequence or transaction id does not help, because
// a row with a lower value can commit later. Versions are assigned under the aggregate's row lock.
// So the versions of an aggregate commit in order, and each snapshot shows which pending version is
// the lowest. The row of that version is the head, and serves as the aggregate's lock. FOR UPDATE
// SKIP LOCKED on the head decides between relays, and only the head gets the lease (lock_token,
// locked_at). The versions behind the head are claimed with it, without a write. A transaction may
// also write its event with a lease, if that event is a head.
//
// A row is a head if the version before it is published or deleted. A relay does not claim a row
// that is not a head. Instead, the relay that publishes the version before marks that version as
// published, and then looks for the next version. It finds the next version if the next version
// committed before the mark. A version that commits after the mark is a head at once.
//
// All times are the database's. A lease that a transaction writes begins at the database's time
// as the relay estimates it, at most a second too early. A failover to a host with a slow clock leaves times in the
// future. So a lease time more than a second ahead, and a retry time more than [MaxRetry]
// ahead, are ignored. A retry time that is less far ahead counts, so that retry waits for up to MaxRetry.
//
// # Where to look
//
// There is no index of pending events. Each event would enter and leave such an index, and dead
// entries stay in an index while any old transaction keeps vacuum from removing the entries. A
// relay finds each pending event in one of these ways:
//
//   - The event is new. ClaimNew reads the rows of transactions that began after the relay's
//     last snapshot, and of transactions that were open in that snapshot. However transactions
//     overlap, it finds each new row and reads no older one.
//   - The event follows an event that the relay has just published. ClaimNew looks for such
//     events, too.
//   - The event is to be retried, or an operator has released it, or it is behind a retry
//     that is published. Then next_retry_at is set, and ClaimRetries finds the event with
//     an index that has very few rows.
//   - A transaction has written the event with the lease of a relay in its own process. If the
//     transaction commits, that relay publishes the event from memory. Until the relay knows the
//     outcome, its low has not seen the event. If the outcome stays unknown, the relay looks for the
//     event by its id within half a second, and again when the lease is over, and takes the lease
//     from it. Then Scan finds the event. If the transaction is still open at that time, ClaimNew finds the event
//     after the commit: the lease counts from before the event was written, so it is over by then. If
//     the database's clock was set back, the relay waits for longer.
//   - A relay had leased the event, or had to skip it, and died. Each relay keeps a row in
//     outbox_relays with its low, which is a snapshot that saw none of the relay's unfinished
//     events. Heartbeat writes the row every few seconds. A relay that finds the row of a dead
//     relay deletes that row and takes over its low, in one statement. Then the relay uses Scan to
//     read the rows that the low did not see, page by page, in the order of their transactions. An
//     operator who removes a parked event writes such a row, too, because an event may be committed behind
//     the parked one meanwhile. If a relay's process has ended, the other relays scan from its low even
//     before one of them takes it over, and they ignore its leases.
//
// So at each moment, for each pending event, some row of outbox_relays has a low that did not see
// the event. The exceptions are events that are parked or to be retried, and events behind such
// events. This is a property of the database's state, so it also holds in the state that a failover
// leaves. A relay that meets another server begins again from the earliest of all lows: it forgets what it
// knew, and scans from that low, which also counts as the low of all work that it began before. It also looks
// for leases under its own token that it has ended, because the new server may lack the statement that ended
// them, and other relays leave them to it. Before the relay has met a server, that server refuses its claims,
// because the relay's row there may have a later low than the relay. If a low comes from another cluster, the
// transactions in the low are in the future here, and the relay scans the whole table. The relay also scans
// the whole table if the table of relays is empty.
//
// A sweep through the whole table finds the remaining rows, such as rows that were changed by hand.
// The sweep reads a page of 1,000 rows every few seconds. If the table outbox was restored without the table of relays, an
// operator writes a row there, of a relay that has ended and whose low has seen nothing. A relay then scans the whole table at once.
//
// # The shape of the table
//
// The table has three full B-trees: on id, on (aggregate_type, aggregate_id, version), and on
// (xact, the bytes of id). None of their columns is ever updated. Partial indexes have an entry
// only for a row that is parked, that is to be retried, or that answers another event. So the
// updates that lease a row and mark it are HOT updates. Such an update only writes a new version of
// the row into the row's page, where the fillfactor of 50 leaves room. In return a published row
// takes twice the space of its data. The write-ahead log, which replicas receive and archives keep,
// is less than half as large as with indexes of new and of pending rows: docs/design.md has the
// measurements of this table and of others.
//
// # Cost of a claim
//
// The cost of a claim depends only on the rows that it finds, and not on other rows of the
// table. The benchmarks compare the cost in an empty table with the cost in three others: with
// 10,000,000 published rows, with 200,000 rows published during a long-running transaction, and
// with 1,000,000 rows that wait behind 1,000 parked ones. Scans, claims of retries and the
// reading of the backlog also read dead entries or published rows. They have their own
// goroutines and time limits, so no new event waits for them.
//
// Rejected designs, which were tried or were too costly to try:
//
//   - A partial index by time, with a cursor that moves along it. Rows that commit late are
//     behind the cursor, and looking back reads dead entries again.
//   - A partial index of pending rows by aggregate, with a scan along the index every few seconds.
//     The index is a fourth tree and prevents HOT updates. During a long-running transaction each
//     scan took 0.4 s for each million rows that were published since the transaction began. With 9
//     million such rows the scan never finished in time.
//   - A table of heads or lanes. It needs a third write in the business transaction, and has
//     the same dead entries in its own index.
//   - A lease on each claimed row. It writes one more version of every row.
//   - A BRIN index on id in place of the B-tree. In pages that the purge has emptied, each
//     insert would widen the range of its pages, which is again a write to the log.
//   - A function in PL/pgSQL that checks whether a version is the next one. With 16 writers it
//     took a third of an event's cost, most of it for the call itself. Now the check is a
//     subquery of the INSERT. The planner never reads the whole table for it, because the
//     table's file never has fewer than 64 pages.
//   - CHECK constraints. Postgres parses each of them again for each INSERT and UPDATE. Three
//     of them took a tenth of an event's cost.
//   - The lowest open transaction id as a relay's low, instead of a snapshot. One transaction
//     that has written something and stays open for hours would keep that low from advancing.
//   - Planning each claim again with the current statistics. A claim of one event then takes 3 ms
//     instead of 0.3 ms. At low load these 3 ms are most of a relay's cost and a good part of an
//     event's latency. Now sessions keep the plans. A plan that was made for a small table must not
//     read all of a large one, so the planner may use only indexes.
//   - Trust in statistics. If the statistics say that the table is empty, all joins have the same
//     estimated cost. All indexes that contain a column, in any position, also have the same
//     estimated cost. With an index on (xact, id), a lookup of an id read all of that index. So no
//     two full indexes have a column in common, and rows are looked up one by one (LATERAL) or
//     named in arrays. In addition, jit is off for the service's role, because compiling a claim
//     took 200 ms.
package queue
