// Package backfill builds a read model from its owner's rows while events are applied.
//
//	owner ── page of rows ──▶ Filler ──▶ table ◀── events
//	                            │
//	                            └─▶ progress, page by page
//
// # Why it converges
//
// A page is read at one time and written at a later one. In between, events may have moved
// its rows further, deleted them, or put them again. The rule inbox.Advance decides for each
// row, under its lock: the higher (epoch, version) stays, but for one that its owner has lost and
// replaced since. So the page and the events may be
// written in any order, and each more than once, and a wrong owner takes no row back. Tombstones are
// rows, so that a late event of a deleted aggregate is stale.
//
// # The order of a cold start
//
// First the subscription, then the backfill. An event that was published before there is a
// subscription is never delivered; the change is in the rows that the owner lists
// afterwards. In the opposite order a change is lost if it comes after its page and before
// the subscription: until the row's next event, which is a gap, or the next check of package
// reconcile. Whether the consumer runs does not matter, since the subscription keeps its
// messages.
//
// For the same reason a page counts only if the owner read it after the backfill started.
// An answer of a replica that lags is written, which is harmless, and asked for again.
//
// A backfill removes no row that the owner does not have, and changes none that is ahead of
// its owner's, unless the owner has changed it later. Package reconcile finds both. It does not fetch a page again
// after the owner was restored: the restore's own steps, with package reconcile, are for
// both cases.
//
// # Rows that cannot be written
//
// A row that the table refuses holds up no other one. It is left, in the log and in the State,
// and package reconcile finds it until it is corrected.
//
// # Progress
//
// It is saved after each page. A backfill that was killed continues at the page that it had
// in hand, which is written once more. It has a lease meanwhile, so that a second one is
// refused: two would load the owner twice, and do no other harm. A process that was killed
// looks like one that is cut off, so its lease has to end, within 30 seconds. A
// process that is stopped gives its lease back. The lease is in the table, and is no lock of
// a session: a transaction pooler has no sessions.
//
// # The table
//
// It is the service's own, is called backfills, and has the columns aggregate_type (the
// primary key), next_id, rows_read, rows_written, started_at, finished_at, holder and
// leased_until. Migration 01005 of the service catalog is an example.
package backfill
