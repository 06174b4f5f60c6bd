// Package replica keeps a copy of another service's aggregates of one type: a table
// with one row, or tombstone, for each.
//
//	events ─▶ inbox.Rows ─▶ table ─▶ readers, as fresh as they demand
//	                 gap │    ▲ │ not there in time
//	                     └─ owner ─┘
//
// Package inbox has the rule by which a row moves, package fresh what readers may
// demand. What this package adds is the way to the owner, which both take: its state
// is applied by the rule inbox.Adopt, and wakes who waits for it. A row of a history
// that the owner has lost gives way to it, whatever the versions, and is reported.
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

	"example.com/lockstep/internal/database"
	"example.com/lockstep/internal/fresh"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
)

const (
	// repairTimeout is longer than a reader's: nobody waits for a repair.
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
	// ErrUnknown, fresh.ErrOwnerAway, or that the caller has gone away.
	Ask func(ctx context.Context, id string, timeout time.Duration) (Answer[S], error)
	// AskAll is Ask for up to consistency.MaxPositions aggregates in one question. It
	// leaves out those that its owner does not know, and has no ErrUnknown. asOf is as
	// in Answer, for all rows.
	AskAll func(ctx context.Context, ids []string, timeout time.Duration) (rows []S, asOf time.Time, err error)
	// Look is where the table is, and Waiters are those who wait for it.
	Look    consistency.Look
	Waiters *consistency.Waiters
	// Log is told of each row that had another history than its owner.
	Log *slog.Logger
}

// Answer is what an owner has of an aggregate.
type Answer[S any] struct {
	Row S
	// AsOf is from when the answer is: all that had committed by then is in it. The
	// zero AsOf is unknown.
	AsOf time.Time
}

// Handler is what is done with events, as they arrive or when an operator
// redrives them.
func (t *Table[S]) Handler() inbox.Handler {
	return inbox.Handler{Decode: t.Decode, Apply: t.Rows.Apply, Repair: t.Repair, Committed: t.Waiters.Notify}
}

// Repair brings e's aggregate to what its owner has. An owner that does not have e has
// lost it (inbox.ErrLost), or is behind and may have answered from a replica
// (inbox.ErrBehind). One that does not know the aggregate is behind as long as
// inbox.MayLag, and a permanent error then.
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

// pull brings the table to what the owner has, in a transaction of its own, and
// returns that. The owner is asked before, so that a slow one holds no lock.
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

// List has look read a page, and count how many of the positions in d are reached in
// the page's own snapshot, until all are. Where the table does not get there in time
// of d, it is brought forward from the owner by w, and the page read then. What is stale
// about the page is empty unless d allows it.
func (t *Table[S]) List(ctx context.Context, r *fresh.Reader, w *database.Writer, d fresh.Demand,
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
			err = fresh.ErrOwnerAway // the table does not show what was written to it
		}
		return err
	})
	if err == nil && outcome == consistency.Stale {
		// The page comes after what is said about it: it lacks that at most.
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

// bring takes the table to d with what the owner has. It asks once, whatever d names,
// and writes nothing where the owner does not have all of it.
func (t *Table[S]) bring(ctx context.Context, w *database.Writer, d fresh.Demand) error {
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
			database.LimitLocks(limit)
			if err := tx.SendBatch(ctx, limit).Close(); err != nil {
				return err
			}
			return do(tx)
		})
	})
}
