package projection_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/projection"
)

// pageNotes is more than a transaction of Fill writes.
const pageNotes = 40

// notes is the Aggregate of a shelf.
type notes struct {
	*shelf

	afterLock      func()                                   // called after each Lock, unless it is nil
	afterPositions func(found []consistency.Position) error // likewise
	beforeFetch    func()                                   // likewise
	next           string                                   // of each page, unless it is empty
}

func (*notes) Type() string { return "note" }

func (*notes) Decode(e eventing.Event) (inbox.Change, error) {
	return inbox.Change{Kind: inbox.Put, Payload: newNote(e.AggregateID, e.Epoch, e.Version, string(e.Payload))}, nil
}

func (*notes) Position(n note) inbox.Position {
	return inbox.Position{Epoch: n.Epoch, Version: n.Version, Deleted: n.Deleted, EventID: n.EventID.UUID, At: n.At}
}

func (*notes) Apply(n note, c inbox.Change) note {
	if lost, ok := c.Payload.(projection.Lost); ok {
		n.Deleted, n.At = true, lost.AsOf
		return n
	}
	return c.Payload.(note)
}

func (*notes) Snapshot(n note) inbox.Change {
	if n.Deleted {
		return change(inbox.Deleted, n)
	}
	return change(inbox.Snapshot, n)
}

func (a *notes) Lock(ctx context.Context, tx pgx.Tx, ids []string) (map[string]note, error) {
	rows, _ := tx.Query(ctx, `SELECT `+noteColumns+` FROM notes WHERE concat(owner, '/', name) = ANY ($1)
		ORDER BY owner, name FOR UPDATE`, ids)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[note])
	byID := map[string]note{}
	for _, n := range found {
		byID[n.id()] = n
	}
	if a.afterLock != nil {
		a.afterLock()
	}
	return byID, err
}

// Upsert goes row by row, in the order of the key.
func (*notes) Upsert(ctx context.Context, tx pgx.Tx, steps []inbox.Step[note]) (written []string, err error) {
	for _, s := range steps {
		conflict := `NOTHING`
		if s.Old.Version > 0 {
			conflict = `UPDATE SET body = excluded.body, epoch = excluded.epoch, version = excluded.version,
				deleted = excluded.deleted, event_id = excluded.event_id, at = excluded.at`
		}
		n := s.New
		tag, err := tx.Exec(ctx, `INSERT INTO notes (`+noteColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
			ON CONFLICT (owner, name) DO `+conflict, n.Body, n.Owner, n.Name, n.Epoch, n.Version, n.Deleted, n.EventID, n.At)
		if err != nil {
			return nil, err
		}
		if tag.RowsAffected() > 0 {
			written = append(written, s.ID)
		}
	}
	return written, nil
}

func (a *notes) fetch(id string, timeout time.Duration) (note, time.Time, error) {
	if a.beforeFetch != nil {
		a.beforeFetch()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	a.asked, a.waits = append(a.asked, id), append(a.waits, timeout)
	n, known := a.owner[id]
	switch {
	case a.away != nil:
		return note{}, time.Time{}, a.away
	case !known:
		return note{}, a.asOf, projection.ErrUnknown
	}
	return n, a.asOf, nil
}

// Fetch is several calls of fetch in one.
func (a *notes) Fetch(_ context.Context, ids []string, timeout time.Duration) (found []note, epoch int64, asOf time.Time, err error) {
	for _, id := range ids {
		var n note
		n, asOf, err = a.fetch(id, timeout)
		switch {
		case err == nil:
			found = append(found, n)
		case !errors.Is(err, projection.ErrUnknown):
			return nil, 0, asOf, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls -= len(ids) - 1
	if a.curt && len(found) == 0 {
		return nil, 0, asOf, fmt.Errorf("none of them: %w", projection.ErrUnknown)
	}
	return found, a.epoch, asOf, nil
}

// List has pages of pageNotes notes.
func (a *notes) List(_ context.Context, from string, _ time.Duration) (page projection.OwnersPage[note], err error) {
	if a.beforeFetch != nil {
		a.beforeFetch()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	if a.away != nil {
		return page, a.away
	}
	page.AsOf, page.Estimate, page.Next = a.asOf, int64(len(a.owner)), a.next
	for _, id := range slices.Sorted(maps.Keys(a.owner)) {
		switch {
		case id < from:
		case len(page.Rows) == pageNotes:
			page.Next = id
			return page, nil
		default:
			page.Rows = append(page.Rows, a.owner[id])
		}
	}
	return page, nil
}

// Incomplete and CountIncomplete find none unless a test has its own.
func (*notes) Incomplete(context.Context, string, int) (ids []string, err error) { return nil, nil }

func (*notes) CountIncomplete(context.Context, int) (int64, error) { return 0, nil }

func (a *notes) Positions(ctx context.Context, wanted []consistency.Position) ([]consistency.Position, error) {
	ids := make([]string, len(wanted))
	for i, p := range wanted {
		ids[i] = p.AggregateID
	}
	rows, _ := a.db.Query(ctx, `SELECT 'note' AS aggregate_type, concat(owner, '/', name) AS aggregate_id, epoch, version FROM notes WHERE concat(owner, '/', name) = ANY ($1)`, ids)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[consistency.Position])
	if err == nil && a.afterPositions != nil {
		err = a.afterPositions(found)
	}
	return found, err
}
