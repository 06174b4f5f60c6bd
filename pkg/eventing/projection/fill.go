package projection

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/tenant"
	"example.com/lockstep/pkg/eventing/txn"
)

// listTimeout bounds a call of Aggregate.List. It is longer than the owner's own time limit for a page. So
// the owner's error arrives first, and that error says more than a timeout here.
const listTimeout = 15 * time.Second

// OwnersPage is a part of the owner's rows, in the order of their ids.
type OwnersPage[S any] struct {
	// Rows are rows and tombstones.
	Rows []S
	// Next is the id at which the next page begins. It is empty if there is no next page.
	Next string
	// AsOf is the time of the page. The page contains everything that the owner had committed by
	// then. Fill refuses a page without AsOf.
	AsOf time.Time
	// Estimate is about how many rows the owner has in all. 0 means that the number is unknown.
	Estimate int64
}

// Filled is the result of one Fill.
type Filled struct {
	// Next is the id at which the next Fill begins. Done means that there is no next page.
	Next string
	Done bool
	// Rows counts the owner's rows that were read. Written counts the rows of them that were
	// written to the table, and Failed counts the rows that could not be written.
	Rows, Written, Failed int
	// AsOf and Estimate are copied from the OwnersPage. A caller that needs every change from
	// before a certain time fills the page again if AsOf is earlier than that time. The answer then
	// came from a replica that lags.
	AsOf     time.Time
	Estimate int64
}

// Fill writes the owner's state of a page of rows that begins at the id from. An empty from means
// the first row. Rows move by the rule inbox.Advance. A row with a higher version than the owner's
// row stays, unless the owner has changed the aggregate after the row's change. So Fill may run
// while events are applied, even if the page was read long before, and may be repeated.
//
// Fill writes 32 rows in a transaction. It gives way to events, so it waits for the locks of the
// rows no longer than txn.Writer does. If it fails, the transactions that it has committed stay.
// The error wraps txn.ErrLocked if other transactions hold the rows, and txn.ErrBusy if other writes
// of the process take too long. Otherwise it is an error of Aggregate.List or of the database.
//
// A row that cannot be read or written is skipped, with a line in the log, as in Replace. Fill has
// no limit for such rows, because a page beyond the limit would hold up all rows behind that page.
// The caller may stop after some number of failed rows.
//
// Fill does not remove rows that the owner does not have, and does not repair rows that are ahead
// of the owner's rows. Package reconcile finds both.
func (p *Projection[S]) Fill(ctx context.Context, from string) (f Filled, err error) {
	page, err := p.aggregate.List(ctx, from, listTimeout)
	if err != nil {
		return f, err
	}
	switch {
	case page.AsOf.IsZero(): // a page of an unknown age could take rows back
		return f, fmt.Errorf("%w: its page of %s does not say as of when", consistency.ErrOwnerUnavailable, p.Type())
	case page.Next != "" && page.Next <= from:
		return f, fmt.Errorf("%w: its page of %s from %.100q on ends at %.100q", consistency.ErrOwnerUnavailable, p.Type(), from, page.Next)
	}
	f = Filled{Next: page.Next, Done: page.Next == "", Rows: len(page.Rows), AsOf: page.AsOf, Estimate: page.Estimate}
	if f.Written, f.Failed, err = p.takeOver(ctx, page.Rows, page.AsOf, tryAgain); err != nil {
		return Filled{}, err
	}
	return f, nil
}

// tryAgain is the argument locked of takeOver with which takeOver fails while a row is locked, so that its
// caller tries again. leaveLocked is the other one.
func tryAgain(err error) error { return err }

// takeOver writes the owner's rows as of the time asOf. It returns how many rows it has written, and how
// many cannot be written. locked decides about a locked row: with tryAgain takeOver fails, and with
// leaveLocked it leaves the row and goes on.
func (p *Projection[S]) takeOver(ctx context.Context, rows []S, asOf time.Time, locked func(error) error) (written, failed int, err error) {
	ids, err := inParts(rows, partRows, func(part []S) ([]string, error) {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		ids, err := p.write(ctx, p.writer, "owner's rows of "+p.Type(), inbox.AdvanceChanges, part, asOf)
		return ids, locked(err)
	}, func(row S, err error) {
		failed++
		p.left(ctx, "owner's row cannot be written", p.aggregate.Snapshot(row).Event.AggregateID, err)
	})
	return len(ids), failed, err
}

// write writes rows, which are the owner's state as of the time asOf, in one transaction of w under
// key. move is inbox.AdoptChanges or inbox.AdvanceChanges. write returns the ids of the rows that
// it has moved. The waits for locks are short and end before Postgres looks for a deadlock, so an
// event that needs the rows is neither held up nor aborted.
func (p *Projection[S]) write(ctx context.Context, w *txn.Writer, key string,
	move func(context.Context, pgx.Tx, inbox.Rows[S], []inbox.Change, time.Time) ([]inbox.Outcome, error), rows []S, asOf time.Time,
) ([]string, error) {
	owned := p.snapshots(rows...)
	err := w.Write(ctx, tenant.All(), key, func(tx *txn.Tx) (err error) {
		owned.outcomes, err = move(ctx, tx, p.aggregate, owned.changes, asOf)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("take over the owner's state: %w", err)
	}
	return p.adopted(ctx, owned), nil
}
