package inbox

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	records "example.com/lockstep/internal/history"
	"example.com/lockstep/pkg/eventing"
)

// item is a row of a read model with a counter: shelf says how many living items
// stand on it.
type item struct {
	ID             string
	Epoch, Version int64
	Deleted        bool
	Shelf          string
	Label          string
	EventID        uuid.UUID
	At             time.Time
	// bare says that the owner had the item in Epoch without an event of that epoch.
	bare bool
}

// itemPayload is an event's content; nil is unchanged.
type itemPayload struct {
	Shelf, Label *string
}

const itemSchema = `
	CREATE TABLE app.item (id text PRIMARY KEY, epoch bigint NOT NULL, version bigint NOT NULL,
		deleted bool NOT NULL, shelf text NOT NULL, label text NOT NULL, event_id uuid NOT NULL, at timestamptz NOT NULL);
	CREATE TABLE app.shelf (id text PRIMARY KEY, items bigint NOT NULL);
	-- What was committed, in the transaction that did it.
	CREATE TABLE app.happened (n bigint GENERATED ALWAYS AS IDENTITY, record jsonb NOT NULL);
	-- A history finds its own rows among those of ten thousand others.
	CREATE INDEX ON app.happened ((record->>'aggregate') text_pattern_ops);
	CREATE INDEX ON app.item (id text_pattern_ops);
	CREATE INDEX ON app.shelf (id text_pattern_ops);
	CREATE INDEX ON app.inbox (aggregate_id text_pattern_ops);
	GRANT SELECT, INSERT, UPDATE, DELETE ON app.item, app.shelf, app.happened TO app_service;` + shadowSchema

func decodeItem(e eventing.Event) (Change, error) {
	kinds := map[string]Kind{"ItemCreated": Created, "ItemUpdated": Updated, "ItemDeleted": Deleted, "ItemPut": Put}
	var p itemPayload
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		return Change{}, err
	}
	kind, ok := kinds[e.Type]
	if !ok {
		return Change{}, fmt.Errorf("event_type: %q is unknown", e.Type)
	}
	return Change{Kind: kind, Payload: p}, nil
}

// items are the Rows of a table with counters.
type items struct{}

func (items) Position(i item) Position {
	return Position{Epoch: i.Epoch, Version: i.Version, Deleted: i.Deleted, EventID: i.EventID, At: i.At}
}

func (items) Apply(i item, c Change) item {
	switch p := c.Payload.(type) {
	case item:
		i = p
	case itemPayload:
		if c.Kind == Deleted || c.Kind == Put {
			i = item{Deleted: c.Kind == Deleted}
		}
		if p.Shelf != nil {
			i.Shelf = *p.Shelf
		}
		if p.Label != nil {
			i.Label = *p.Label
		}
	}
	e := c.Event
	i.ID, i.Epoch, i.Version, i.EventID, i.At = e.AggregateID, e.Epoch, e.Version, e.ID, e.OccurredAt.Truncate(time.Microsecond)
	return i
}

func (items) Lock(ctx context.Context, tx pgx.Tx, ids []string) (map[string]item, error) {
	return lockItems(ctx, tx, "item", ids)
}

func lockItems(ctx context.Context, tx pgx.Tx, table string, ids []string) (map[string]item, error) {
	rows, _ := tx.Query(ctx, `SELECT id, epoch, version, deleted, shelf, label, event_id, at FROM `+table+` WHERE id = ANY ($1) ORDER BY id FOR UPDATE`, ids)
	items, err := pgx.CollectRows(rows, pgx.RowToStructByPos[item])
	byID := map[string]item{}
	for _, i := range items {
		byID[i.ID] = i
	}
	return byID, err
}

// writeItem reports whether it has written the row: an absent one is inserted if it is still
// absent.
func writeItem(ctx context.Context, tx pgx.Tx, table string, s Step[item]) (bool, error) {
	conflict := `NOTHING`
	if s.Old.Version > 0 {
		conflict = `UPDATE SET epoch = excluded.epoch, version = excluded.version, deleted = excluded.deleted,
			shelf = excluded.shelf, label = excluded.label, event_id = excluded.event_id, at = excluded.at`
	}
	n := s.New
	tag, err := tx.Exec(ctx, `INSERT INTO `+table+` VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO `+conflict,
		n.ID, n.Epoch, n.Version, n.Deleted, n.Shelf, n.Label, n.EventID, n.At)
	return tag.RowsAffected() > 0, err
}

// Upsert goes row by row: ApplyChanges is tested, not this SQL.
func (items) Upsert(ctx context.Context, tx pgx.Tx, steps []Step[item]) (written []string, err error) {
	deltas := map[string]int{}
	for _, s := range steps {
		n := s.New
		wrote, err := writeItem(ctx, tx, "item", s)
		if err != nil {
			return nil, err
		}
		if !wrote {
			continue
		}
		written = append(written, s.ID)
		if s.Old.Version > 0 && !s.Old.Deleted {
			deltas[s.Old.Shelf]--
		}
		if !n.Deleted {
			deltas[n.Shelf]++
		}
	}
	for _, shelf := range slices.Sorted(maps.Keys(deltas)) {
		if _, err := tx.Exec(ctx, `INSERT INTO shelf VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET items = shelf.items + $2`,
			shelf, deltas[shelf]); err != nil {
			return nil, err
		}
	}
	return written, nil
}

// applyRecorded calls ApplyChanges and records the applied events for the history checker.
func applyRecorded(ctx context.Context, tx pgx.Tx, changes []Change, rows Rows[item]) ([]Outcome, error) {
	states := map[string]item{}
	outcomes, err := ApplyChanges(ctx, tx, keepWritten{rows, states}, changes)
	if err != nil {
		return outcomes, err
	}
	var happened []records.Record
	for i, c := range changes {
		if outcomes[i] == Applied {
			happened = append(happened, applied(c, states[c.Event.AggregateID]))
		}
		if outcomes[i] == Diverged {
			happened = append(happened, recordOf(records.Report, c.Event))
		}
		if !outcomes[i].needsOwner() {
			happened = append(happened, recordOf(records.Effect, c.Event))
		}
	}
	return outcomes, remember(ctx, tx, happened)
}

// ownersRule is AdoptChanges or AdvanceChanges.
type ownersRule func(context.Context, pgx.Tx, Rows[item], []Change, time.Time) ([]Outcome, error)

// adoptRecorded moves rows to the owner's states at asOf, and records the repairs for the
// history checker. It returns how many rows it has moved.
func adoptRecorded(ctx context.Context, tx pgx.Tx, by ownersRule, rows Rows[item], asOf time.Time, owned ...item) (moved int, err error) {
	states := map[string]item{}
	var changes []Change
	for _, i := range owned {
		changes = append(changes, snapshotOf(i))
	}
	outcomes, err := by(ctx, tx, keepWritten{rows, states}, changes, asOf)
	if err != nil {
		return 0, err
	}
	var happened []records.Record
	for i, c := range changes {
		if outcomes[i] == Stale {
			continue
		}
		moved++
		repaired := applied(c, states[c.Event.AggregateID])
		repaired.Event = "" // the owner's state, and not the event
		if repaired.Change != records.Deleted {
			repaired.Change = records.Repair
		}
		happened = append(happened, repaired)
		if outcomes[i] == Diverged {
			happened = append(happened, recordOf(records.Report, c.Event))
		}
	}
	return moved, remember(ctx, tx, happened)
}

// snapshotOf is the owner's state of an item as a change.
func snapshotOf(i item) Change {
	c := Change{Kind: Snapshot, Payload: i, Event: eventing.Event{
		ID: i.EventID, AggregateType: "item", AggregateID: i.ID, Epoch: i.Epoch, Version: i.Version, OccurredAt: i.At,
	}}
	if i.Deleted {
		c.Kind = Deleted
	}
	return c
}

// keepWritten keeps in states the rows that it writes.
type keepWritten struct {
	Rows[item]

	states map[string]item
}

func (k keepWritten) Upsert(ctx context.Context, tx pgx.Tx, steps []Step[item]) ([]string, error) {
	written, err := k.Rows.Upsert(ctx, tx, steps)
	for _, s := range steps {
		if slices.Contains(written, s.ID) {
			k.states[s.ID] = s.New
		}
	}
	return written, err
}

// applied is c's Apply, with the state if c led to it: of several changes in a
// batch, only the last one's is ever written.
func applied(c Change, written item) records.Record {
	kinds := map[Kind]records.Change{
		Created: records.Created, Updated: records.Delta, Deleted: records.Deleted, Snapshot: records.Repair, Put: records.Whole,
	}
	r := recordOf(records.Apply, c.Event)
	r.Change = kinds[c.Kind]
	if written.Epoch == r.Epoch && written.Version == r.Version && !written.bare {
		r.State = written.String()
	}
	return r
}

// recordOf is one about e, which has no id where it stands for the owner's state.
func recordOf(kind records.Kind, e eventing.Event) records.Record {
	r := records.Record{Kind: kind, Aggregate: e.AggregateID, Epoch: e.Epoch, Version: e.Version}
	if e.ID != uuid.Nil {
		r.Event = e.ID.String()
	}
	return r
}

func remember(ctx context.Context, tx pgx.Tx, happened []records.Record) error {
	list, err := json.Marshal(happened)
	if err != nil || len(happened) == 0 {
		return err
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO happened (record) SELECT r FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY AS l (r, n) ORDER BY n`, list)
	return err
}

// String is the item as a history compares it.
func (i item) String() string {
	i.At = i.At.UTC()
	s, err := json.Marshal(i)
	if err != nil {
		return err.Error()
	}
	return string(s)
}
