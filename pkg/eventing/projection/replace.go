package projection

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// replaceRows bounds the rows, and with them the locks, of one transaction.
const replaceRows = 32

// Type is that of the aggregate.
func (p *Projection[S]) Type() string { return p.aggregate.Type() }

// Replace is that of a reconcile.Model. The owner is asked for each row before the
// transaction that writes it, as in Repair.
//
// A row that the owner does not know becomes a tombstone of its own version, and is not
// removed. Readers are told that it is gone either way. But the broker may still have
// events of the lost history, for as long as it keeps messages: on a tombstone they are
// stale, without a row they would make the aggregate anew. And an aggregate that the owner
// puts again, or gets back by another restore, replaces the tombstone by the usual rules.
func (p *Projection[S]) Replace(ctx context.Context, by audit.Actor, seen []reconcile.Row) (replaced []string, err error) {
	for len(seen) > 0 && err == nil {
		n := min(len(seen), replaceRows)
		var done []string
		done, err = p.replace(ctx, by, seen[:n])
		replaced, seen = append(replaced, done...), seen[n:]
	}
	return replaced, err
}

func (p *Projection[S]) replace(ctx context.Context, by audit.Actor, seen []reconcile.Row) (replaced []string, err error) {
	var owned ownerState
	var oldest time.Time
	at := map[string]inbox.Position{}
	for _, row := range seen {
		c, asOf, err := p.ownersState(ctx, row)
		if err != nil {
			return nil, err
		}
		if c.Kind == 0 {
			continue
		}
		at[row.ID] = position(row)
		owned.changes = append(owned.changes, c)
		if oldest.IsZero() || asOf.Before(oldest) {
			oldest = asOf
		}
	}
	owned.sort()
	writing, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err = pgx.BeginFunc(writing, p.db, func(tx pgx.Tx) (err error) {
		before, err := p.aggregate.Lock(writing, tx, owned.ids())
		if err != nil {
			return err
		}
		if owned.outcomes, err = inbox.ReplaceChanges(writing, tx, p.aggregate, owned.changes, at, oldest); err != nil {
			return err
		}
		subjects, err := p.subjects(owned, before)
		if err != nil {
			return err
		}
		return audit.Write(writing, tx, "reconcile", by, subjects...)
	})
	if err != nil {
		return nil, fmt.Errorf("replace rows: %w", err)
	}
	p.adopted(writing, owned)
	for i, c := range owned.changes {
		if owned.written(i) {
			replaced = append(replaced, c.Event.AggregateID)
		}
	}
	return replaced, nil
}

// position is the position of a row that was seen to differ.
func position(row reconcile.Row) inbox.Position {
	return inbox.Position{Epoch: row.Epoch, Version: row.Version, Deleted: row.Deleted, EventID: row.EventID, At: row.At}
}

// Lost is the payload of a Deleted change that no event has made: as of a time, the owner
// does not know the aggregate.
type Lost struct{ AsOf time.Time }

// ownersState is the owner's state of a row as a change: a tombstone if the owner does not know
// it, and the zero Change if the answer may be from before the row.
func (p *Projection[S]) ownersState(ctx context.Context, row reconcile.Row) (c inbox.Change, asOf time.Time, err error) {
	owners, asOf, err := p.aggregate.Fetch(ctx, row.ID, repairTimeout)
	if err == nil {
		return p.aggregate.Snapshot(owners), asOf, nil
	}
	last := eventing.Event{
		ID: row.EventID, AggregateType: p.aggregate.Type(), AggregateID: row.ID, Epoch: row.Epoch, Version: row.Version, OccurredAt: row.At,
	}
	switch {
	case !errors.Is(err, ErrUnknown):
		return c, asOf, err
	case row.Version == 0 || inbox.MayLag(last, asOf):
		return c, asOf, nil
	}
	return inbox.Change{Kind: inbox.Deleted, Event: last, Payload: Lost{cmp.Or(asOf, time.Now().UTC())}}, asOf, nil
}

// subjects are the rows that were written, with the row before, for the audit table.
func (p *Projection[S]) subjects(owned ownerState, before map[string]S) (subjects []audit.Subject, err error) {
	for i, c := range owned.changes {
		if !owned.written(i) {
			continue
		}
		s := audit.Subject{EventID: c.Event.ID, AggregateType: c.Event.AggregateType, AggregateID: c.Event.AggregateID, Version: c.Event.Version}
		if row, ok := before[s.AggregateID]; ok {
			at := p.aggregate.Position(row)
			if s.Record, err = json.Marshal(map[string]any{
				"row": row, "epoch": at.Epoch, "version": at.Version, "deleted": at.Deleted, "event_id": at.EventID, "updated_at": at.At,
			}); err != nil {
				return nil, fmt.Errorf("record the row before: %w", err)
			}
		}
		subjects = append(subjects, s)
	}
	return subjects, nil
}
