// Package replica keeps a copy of another service's aggregates of one type: a table
// with one row, or tombstone, for each.
//
//	events ─▶ inbox.Rows ─▶ table ─▶ readers, as fresh as they demand
//	                 gap │    ▲ │ not there in time
//	                     └─ owner ─┘
//
// Package inbox has the rule by which a row moves, package fresh the demands of
// readers. This package adds the call to the owner, which both use: it applies the
// owner's state by the rule inbox.Adopt, and notifies the readers that wait for it. If
// a row's history was lost by the owner, the owner's state replaces the row at any
// version, and the divergence is reported.
package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/fresh"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/txn"
)

const (
	// repairTimeout is longer than a reader's, because no reader waits for a repair.
	repairTimeout = 5 * time.Second
	// writeTimeout bounds a repair's transaction, waits for locks included.
	writeTimeout = 5 * time.Second
)

// ErrUnknown is the owner's answer that there never was such an aggregate. It has an
// AsOf, as any answer has, where the owner was asked at all.
var ErrUnknown = errors.New("owner does not know it")

// Table is the copy of one type of aggregate, with S as its rows.
type Table[S any] struct {
	DB   *pgxpool.Pool
	Type string // of the aggregates
	Rows inbox.Rows[S]
	// Decode is that of an inbox.Handler.
	Decode func(e eventing.Event) (inbox.Change, error)
	// Snapshot is the owner's state as a change.
	Snapshot func(row S) inbox.Change
	// Ask returns an aggregate or its tombstone as the owner has it. Its errors are
	// ErrUnknown, fresh.ErrOwnerAway, or the error of the caller's ctx.
	Ask func(ctx context.Context, id string, timeout time.Duration) (Answer[S], error)
	// AskAll is Ask for up to consistency.MaxPositions aggregates in one call. It
	// leaves out aggregates that the owner does not know, and has no ErrUnknown. asOf
	// is as in Answer, for all rows.
	AskAll func(ctx context.Context, ids []string, timeout time.Duration) (rows []S, asOf time.Time, err error)
	// Look reads the table's positions, and Waiters are the readers that wait for them.
	Look    consistency.Look
	Waiters *consistency.Waiters
	// Log gets a line for each row that had another history than its owner.
	Log *slog.Logger
}

// Answer is an owner's state of an aggregate.
type Answer[S any] struct {
	Row S
	// AsOf is the time of the answer: it contains everything that had committed by
	// then. The zero AsOf is unknown.
	AsOf time.Time
}

// Handler applies events, as they arrive or when an operator redrives them.
func (t *Table[S]) Handler() inbox.Handler {
	return inbox.Handler{Decode: t.Decode, Apply: t.Rows.Apply, Repair: t.Repair, Committed: t.Waiters.Notify}
}

// Repair gives e's aggregate the owner's state. An owner that does not have e has
// lost it (inbox.ErrLost), or is behind and may have answered from a replica
// (inbox.ErrBehind). An owner that does not know the aggregate is behind while
// inbox.MayLag holds, and a permanent error afterwards.
func (t *Table[S]) Repair(ctx context.Context, e eventing.Event) error {
	answer, err := t.pull(ctx, e.AggregateID, repairTimeout)
	switch {
	case errors.Is(err, ErrUnknown) && inbox.MayLag(e, answer.AsOf):
		return fmt.Errorf("%w: %w", inbox.ErrBehind, err)
	case errors.Is(err, ErrUnknown):
		return eventing.Permanent(err)
	case err != nil:
		return err
	}
	return inbox.Has(t.Rows.Position(answer.Row), e, answer.AsOf)
}

// pull asks the owner for its state, writes it to the table in a transaction of its
// own, and returns it. The owner is asked before the transaction, so that a slow one
// holds no lock.
func (t *Table[S]) pull(ctx context.Context, id string, timeout time.Duration) (answer Answer[S], err error) {
	if answer, err = t.Ask(ctx, id, timeout); err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return answer, t.take(ctx, []S{answer.Row}, answer.AsOf, func(do func(pgx.Tx) error) error { return pgx.BeginFunc(ctx, t.DB, do) })
}

// take applies rows, the owner's state at asOf, in a transaction of write, and
// notifies the readers that wait for them.
func (t *Table[S]) take(ctx context.Context, rows []S, asOf time.Time, write func(do func(pgx.Tx) error) error) error {
	changes := make([]inbox.Change, len(rows))
	for i, row := range rows {
		changes[i] = t.Snapshot(row)
	}
	slices.SortFunc(changes, func(a, b inbox.Change) int { return strings.Compare(a.Event.AggregateID, b.Event.AggregateID) })
	var outcomes []inbox.Outcome
	err := write(func(tx pgx.Tx) (err error) {
		outcomes, err = t.Rows.Adopt(ctx, tx, changes, asOf)
		return err
	})
	if err != nil {
		return fmt.Errorf("take over the owner's state: %w", err)
	}
	var moved []string
	for i, outcome := range outcomes {
		e := changes[i].Event
		if outcome == inbox.Diverged {
			t.diverged(ctx, e)
		}
		if outcome == inbox.Diverged || outcome == inbox.Applied {
			moved = append(moved, e.Key())
		}
	}
	if len(moved) > 0 {
		t.Waiters.Notify(moved...)
	}
	return nil
}

// List calls look to read a page, and to count the positions of d that are reached in
// the page's own snapshot, until all are. If the table does not reach them within d's
// wait, List fetches the owner's state, writes it with w, and reads the page then.
// stale lists the positions that the page may lack; it is empty unless d allows stale
// data.
func (t *Table[S]) List(ctx context.Context, r *fresh.Reader, w *txn.Writer, d fresh.Demand,
	look func(context.Context, []consistency.Position) (reached int, err error),
) (outcome consistency.Outcome, stale []fresh.Lag, err error) {
	stand := func(ctx context.Context) (fresh.Standing, error) {
		reached, err := look(ctx, d.Wanted())
		if reached < len(d.Wanted()) {
			return fresh.Behind, err
		}
		return fresh.Met, err
	}
	outcome, err = r.Satisfy(ctx, d, stand, func(ctx context.Context) error {
		if err := t.bring(ctx, w, d); err != nil {
			return err
		}
		found, err := stand(ctx)
		if err == nil && found != fresh.Met {
			err = fresh.ErrOwnerAway // the table does not show the rows that were written to it
		}
		return err
	})
	if err == nil && outcome == consistency.Stale {
		// The page is read after its lags, so that it lacks at most those.
		if stale, err = t.lags(ctx, d); err == nil {
			_, err = look(ctx, d.Wanted())
		}
	}
	return outcome, stale, err
}

func (t *Table[S]) lags(ctx context.Context, d fresh.Demand) ([]fresh.Lag, error) {
	found, err := t.Look(ctx, d.Wanted())
	return d.Lags(found...), err
}

// bring moves the table forward to d with the owner's state. It asks once, for any
// number of aggregates in d, and writes nothing if the owner does not have all of them.
func (t *Table[S]) bring(ctx context.Context, w *txn.Writer, d fresh.Demand) error {
	lags, err := t.lags(ctx, d)
	if err != nil || len(lags) == 0 {
		return err
	}
	ids := make([]string, len(lags))
	for i, lag := range lags {
		ids[i] = lag.ID
	}
	rows, asOf, err := t.AskAll(ctx, ids, fresh.AskTimeout)
	if err != nil {
		return err
	}
	owners := make([]consistency.Position, len(rows))
	for i, row := range rows {
		e := t.Snapshot(row).Event
		owners[i] = consistency.Position{AggregateType: t.Type, AggregateID: e.AggregateID, Epoch: e.Epoch, Version: e.Version}
	}
	if len(d.Only(func(id string) bool { return slices.Contains(ids, id) }).Lags(owners...)) > 0 {
		return fresh.ErrAhead
	}
	return t.take(ctx, rows, asOf, func(do func(pgx.Tx) error) error {
		return w.Write(ctx, strings.Join(ids, " "), func(tx pgx.Tx) error {
			limit := &pgx.Batch{}
			txn.LimitLocks(limit)
			if err := tx.SendBatch(ctx, limit).Close(); err != nil {
				return err
			}
			return do(tx)
		})
	})
}
