package inbox

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
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
	GRANT SELECT, INSERT, UPDATE, DELETE ON app.item, app.shelf, app.happened TO app_service`

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
	rows, _ := tx.Query(ctx, `SELECT id, epoch, version, deleted, shelf, label, event_id, at FROM item WHERE id = ANY ($1) ORDER BY id FOR UPDATE`, ids)
	items, err := pgx.CollectRows(rows, pgx.RowToStructByPos[item])
	byID := map[string]item{}
	for _, i := range items {
		byID[i.ID] = i
	}
	return byID, err
}

// Upsert goes row by row: ApplyChanges is tested, not this SQL.
func (items) Upsert(ctx context.Context, tx pgx.Tx, steps []Step[item]) (written []string, err error) {
	deltas := map[string]int{}
	for _, s := range steps {
		conflict := `NOTHING`
		if s.Old.Version > 0 {
			conflict = `UPDATE SET epoch = excluded.epoch, version = excluded.version, deleted = excluded.deleted,
				shelf = excluded.shelf, label = excluded.label, event_id = excluded.event_id, at = excluded.at`
		}
		n := s.New
		tag, err := tx.Exec(ctx, `INSERT INTO item VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO `+conflict,
			n.ID, n.Epoch, n.Version, n.Deleted, n.Shelf, n.Label, n.EventID, n.At)
		if err != nil {
			return nil, err
		}
		if tag.RowsAffected() == 0 {
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

// adoptRecorded calls AdoptChanges and records the repair for the history checker.
func adoptRecorded(ctx context.Context, tx pgx.Tx, c Change, rows Rows[item]) error {
	states := map[string]item{}
	outcomes, err := AdoptChanges(ctx, tx, keepWritten{rows, states}, []Change{c}, time.Time{})
	if err != nil || outcomes[0] == Stale {
		return err
	}
	repaired := applied(c, states[c.Event.AggregateID])
	repaired.Event = "" // the owner's state, and not the event
	if repaired.Change != records.Deleted {
		repaired.Change = records.Repair
	}
	happened := []records.Record{repaired}
	if outcomes[0] == Diverged {
		happened = append(happened, recordOf(records.Report, c.Event))
	}
	return remember(ctx, tx, happened)
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
	if written.Epoch == r.Epoch && written.Version == r.Version {
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

// life is the history of one item at its owner: state n is that after event n.
type life struct {
	events []eventing.Event
	states []item
	// lost are events that the owner no longer has, and fork is how many states there
	// were when it lost them; 0 where it lost none.
	lost []eventing.Event
	fork int
	// lostStates are those after each of lost.
	lostStates []item
}

// lose takes the owner back to its state after some of its events: it fails over, and no
// event reports that. The next events reuse the versions.
func (l *life) lose(after int) {
	l.lost, l.fork = slices.Clone(l.events[after:]), after
	l.lostStates = slices.Clone(l.states[after:])
	l.events, l.states = l.events[:after:after], l.states[:after:after]
}

// written are the events in the order in which they were committed and published,
// and those that the owner lost.
func (l *life) written() (happened []records.Record) {
	add := func(events []eventing.Event, states []item) {
		for i, e := range events {
			w := recordOf(records.Write, e)
			w.State = states[i].String()
			happened = append(happened, w, recordOf(records.Publish, e))
		}
	}
	add(l.events[:l.fork], l.states[:l.fork])
	add(l.lost, l.lostStates)
	add(l.events[l.fork:], l.states[l.fork:])
	for _, e := range l.lost {
		happened = append(happened, recordOf(records.Lost, e))
	}
	return happened
}

// all are the events that were published.
func (l *life) all() []eventing.Event { return append(slices.Clone(l.events), l.lost...) }

func (l *life) last() item { return l.states[len(l.states)-1] }

// happen adds an event that takes the item to its next version, in an epoch.
func (l *life) happen(t testing.TB, id, name string, epoch int64, p itemPayload) {
	t.Helper()
	var before item
	version := int64(1)
	if len(l.states) > 0 {
		before = l.last()
		version = before.Version + 1
	}
	e := event(id, version)
	e.AggregateType, e.Type, e.Epoch, e.PreviousEventID = "item", name, epoch, before.EventID
	e.OccurredAt = epochStart.Add(time.Duration(len(l.states)+2*len(l.lost)) * time.Second)
	var err error
	if e.Payload, err = json.Marshal(p); err != nil {
		t.Fatal(err)
	}
	c, err := decodeItem(e)
	if err != nil {
		t.Fatal(err)
	}
	c.Event = e
	l.events, l.states = append(l.events, e), append(l.states, items{}.Apply(before, c))
}

// restore takes the item back to one of its states. No event reports that: the next event
// is the first of a new epoch.
func (l *life) restore(t testing.TB, id string, to item, p itemPayload) {
	t.Helper()
	past := life{states: []item{to}}
	past.happen(t, id, "ItemUpdated", to.Epoch+1, p)
	l.events, l.states = append(l.events, past.events...), append(l.states, past.last())
}

// epochStart is when all lives begin. An event is a second after the one before.
var epochStart = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// since is a state that the owner had at the time of e or later. By then it has lost its
// lost events.
func (l *life) since(e eventing.Event, pick func(n int) int) item {
	if slices.ContainsFunc(l.lost, func(lost eventing.Event) bool { return lost.ID == e.ID }) {
		return l.states[l.fork+pick(len(l.states)-l.fork)]
	}
	first := slices.IndexFunc(l.states, func(s item) bool {
		return cmp.Or(cmp.Compare(s.Epoch, e.Epoch), cmp.Compare(s.Version, e.Version)) >= 0
	})
	return l.states[first+pick(len(l.states)-first)]
}
