// Package backfill builds a read model from its owner's rows while events are applied.
//
//	owner ── page of rows ──▶ Filler ──▶ table ◀── events
//	                            │
//	                            └─▶ progress, page by page
//
// # Why it converges
//
// A page is read at one time and written at a later time. In between, events may have moved rows of
// the page further, deleted them, or put them again. The rule inbox.Advance decides about each row,
// under the row's lock. It keeps the higher (epoch, version), except a version that the owner has
// lost and replaced since. So the page and the events may be written in any order, and each more
// than once. A page of a wrong owner makes no row older. Tombstones are rows too, so a late event
// of a deleted aggregate is stale.
//
// # The order of a cold start
//
// Create the subscription first, and then run the backfill. An event that was published before
// there is a subscription is never delivered, but its change is in the rows that the owner lists
// afterwards. In the opposite order, a change could commit after its page was read and before there
// is a subscription. The change is then missing until the row's next event, which reveals the gap,
// or until the next check of package reconcile. The consumer need not run, because the subscription
// keeps its messages.
//
// For the same reason a page counts only if the owner read it after the backfill started. The
// answer of a replica that lags is written, which is harmless, and the page is requested again.
//
// A backfill removes no row that the owner does not have. It changes no row that is ahead of its
// owner's, unless the owner has changed the aggregate later. Package reconcile finds both kinds of
// rows. If the owner is restored while a backfill is under way, the backfill does not fetch earlier
// pages again. The steps of the restore, with package reconcile, cover this.
//
// # Rows that cannot be written
//
// A row that the table refuses does not hold up other rows. The backfill skips it, logs it, and
// counts it in the State. Package reconcile finds it until it is corrected.
//
// # Progress
//
// The progress is saved after each page. A backfill that was killed continues at the page that it
// was working on, which is written once more. A running backfill has a lease, so that a second
// backfill is refused. Two backfills would load the owner twice, and do no other harm. Other
// processes cannot distinguish a killed process from a process that is cut off. So the next
// backfill has to wait up to 30 seconds, until the lease of the killed process ends. A process that
// is stopped gives its lease back. The lease is a row of the table and not a lock of a session,
// because a transaction pooler has no sessions.
//
// # The table
//
// The table belongs to the service and is called backfills. It has the columns aggregate_type (the
// primary key), next_id, rows_read, rows_written, started_at, finished_at, holder and leased_until.
// Migration 01005 of the service catalog is an example.
package backfill
