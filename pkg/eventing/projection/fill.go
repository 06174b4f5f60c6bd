package projection

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/txn"
)

// listTimeout is longer than the owner's own limit for a page, which says more.
const listTimeout = 15 * time.Second

// OwnersPage is a part of the owner's rows, in the order of their ids.
type OwnersPage[S any] struct {
	// Rows are rows and tombstones.
	Rows []S
	// Next is the id at which the next page begins; empty after the last row.
	Next string
	// AsOf is that of Fetch. Fill refuses a page of an unknown time.
	AsOf time.Time
	// Estimate is about how many rows the owner has in all; 0 is unknown.
	Estimate int64
}

// Filled is what one Fill has done.
type Filled struct {
	// Next is the id at which the next Fill begins. Done says that there is none.
	Next string
	Done bool
	// Rows of the owner were read, and Written of them moved their row. Failed of them could
	// not be written.
	Rows, Written, Failed int
	// AsOf and Estimate are those of the OwnersPage. A caller that needs every change of
	// before a certain time fills the page again if AsOf is earlier: the answer came from a
	// replica that lags.
	AsOf     time.Time
	Estimate int64
}

// Fill gives a page of rows, from an id on, the owner's state. An empty from is the first
// row. Rows move by the rule inbox.Advance. So Fill may run while events are applied, at any
// time after the page was read, and again: a row that events have brought further stays, and
// no row gets a lower version, unless the owner has changed it since.
// Fill writes 32 rows in a transaction, and waits for their locks no longer than txn.Writer
// does: it gives way to events. When it fails, its transactions before stay. The error wraps
// txn.ErrLocked if other transactions hold the rows, else it is that of Fetch or of the
// database.
//
// A row that cannot be read or written is left, with a line in the log, as in Replace. How many
// of them end the work of many Fills is its caller's to say: a bound for a page would hold up
// the rows behind it.
//
// Fill removes no row that the owner does not have, and repairs none that is ahead of its
// owner's: see package reconcile.
func (p *Projection[S]) Fill(ctx context.Context, from string) (f Filled, err error) {
	page, err := p.aggregate.List(ctx, from, listTimeout)
	if err != nil {
		return f, err
	}
	switch {
	case page.AsOf.IsZero(): // one that is believed whatever its age could take rows back
		return f, fmt.Errorf("%w: its page of %s does not say as of when", consistency.ErrOwnerUnavailable, p.Type())
	case page.Next != "" && page.Next <= from:
		return f, fmt.Errorf("%w: its page of %s from %.100q on ends at %.100q", consistency.ErrOwnerUnavailable, p.Type(), from, page.Next)
	}
	f = Filled{Next: page.Next, Done: page.Next == "", Rows: len(page.Rows), AsOf: page.AsOf, Estimate: page.Estimate}
	if f.Written, f.Failed, err = p.takeOver(ctx, page.Rows, page.AsOf); err != nil {
		return Filled{}, err
	}
	return f, nil
}

// takeOver writes the owner's rows at asOf, and returns how many it has written, and how many
// cannot be written.
func (p *Projection[S]) takeOver(ctx context.Context, rows []S, asOf time.Time) (written, failed int, err error) {
	ids, err := inParts(rows, partRows, func(part []S) ([]string, error) {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		return p.write(ctx, p.writer, "owner's rows", inbox.AdvanceChanges, part, asOf)
	}, func(row S, err error) {
		failed++
		p.left(ctx, "owner's row cannot be written", p.aggregate.Snapshot(row).Event.AggregateID, err)
	})
	return len(ids), failed, err
}

// write gives rows the owner's state at asOf, by inbox.AdoptChanges or inbox.AdvanceChanges, in one
// transaction of w, which names them key. It returns the ids of those that it has moved. Its short
// waits for locks end before Postgres looks for a deadlock, so an event that needs the rows is
// neither held up nor aborted.
func (p *Projection[S]) write(ctx context.Context, w *txn.Writer, key string,
	move func(context.Context, pgx.Tx, inbox.Rows[S], []inbox.Change, time.Time) ([]inbox.Outcome, error), rows []S, asOf time.Time,
) ([]string, error) {
	owned := p.snapshots(rows...)
	err := w.Write(ctx, key, func(tx *txn.Tx) (err error) {
		owned.outcomes, err = move(ctx, tx, p.aggregate, owned.changes, asOf)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("take over the owner's state: %w", err)
	}
	return p.adopted(ctx, owned), nil
}
