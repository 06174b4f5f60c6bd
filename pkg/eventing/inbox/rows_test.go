package inbox

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
)

// table is rows in memory. Others write to it between read and write.
type table struct {
	rows  map[string]item
	looks int
	// meanwhile is the write of others after a read.
	meanwhile func(t *table)
	hides     bool // looks find nothing
	steps     []Step[item]
}

func (*table) Position(row item) Position    { return items{}.Position(row) }
func (*table) Apply(row item, c Change) item { return items{}.Apply(row, c) }

func (t *table) Lock(_ context.Context, _ pgx.Tx, ids []string) (map[string]item, error) {
	t.looks++
	found := map[string]item{}
	for _, id := range ids {
		if row, ok := t.rows[id]; ok && !t.hides {
			found[id] = row
		}
	}
	t.meanwhile(t)
	return found, nil
}

func (t *table) Upsert(_ context.Context, _ pgx.Tx, steps []Step[item]) (written []string, err error) {
	for _, s := range steps {
		if _, there := t.rows[s.ID]; there && s.Old.Version == 0 {
			continue
		}
		t.rows[s.ID] = s.New
		t.steps = append(t.steps, s)
		written = append(written, s.ID)
	}
	return written, nil
}

func itemChange(id string, version int64, kind Kind, label string) Change {
	return Change{Kind: kind, Payload: itemPayload{Label: &label}, Event: eventing.Event{AggregateID: id, Version: version, Epoch: 1}}
}

func TestRowsMergeABatchIntoOneStepPerRow(t *testing.T) {
	t.Parallel()
	tab := &table{rows: map[string]item{"b": {ID: "b", Epoch: 1, Version: 4}}, meanwhile: func(*table) {}}
	outcomes, err := ApplyChanges(t.Context(), nil, tab, []Change{
		itemChange("a", 1, Created, "one"), itemChange("a", 2, Updated, "two"), itemChange("a", 4, Updated, "four"),
		itemChange("b", 4, Updated, "again"), itemChange("b", 5, Updated, "five"), itemChange("c", 2, Updated, "late"),
	})
	if diff := cmp.Diff([]Outcome{Applied, Applied, Gap, Stale, Applied, Gap}, outcomes); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	want := []Step[item]{
		{ID: "a", New: item{ID: "a", Epoch: 1, Version: 2, Label: "two"}},
		{ID: "b", Old: item{ID: "b", Epoch: 1, Version: 4}, New: item{ID: "b", Epoch: 1, Version: 5, Label: "five"}},
	}
	if diff := cmp.Diff(want, tab.steps, cmpopts.EquateComparable(item{})); diff != "" || tab.looks != 1 {
		t.Errorf("%d looks; steps %s", tab.looks, diff)
	}
}

// A row that appears after the read is read again, and a decision for an absent row is made
// again for it.
func TestRowsDecideAgainOnWhatAppeared(t *testing.T) {
	t.Parallel()
	tab := &table{rows: map[string]item{}, meanwhile: func(t *table) {
		if t.looks == 1 {
			t.rows["a"] = item{ID: "a", Epoch: 1, Version: 1, Label: "theirs"}
		}
	}}
	outcomes, err := ApplyChanges(t.Context(), nil, tab, []Change{
		itemChange("a", 1, Created, "ours"), itemChange("a", 2, Updated, "two"), itemChange("b", 1, Created, "b"),
	})
	if diff := cmp.Diff([]Outcome{Stale, Applied, Applied}, outcomes); err != nil || diff != "" || tab.looks != 2 {
		t.Errorf("%d looks, %v %s", tab.looks, err, diff)
	}
	if s := tab.steps[1]; s.ID != "a" || s.Old.Label != "theirs" || s.New.Version != 2 {
		t.Errorf("step %+v; want it from what was there", s)
	}
	always := &table{rows: map[string]item{"a": {ID: "a"}}, meanwhile: func(*table) {}, hides: true}
	if _, err := ApplyChanges(t.Context(), nil, always, []Change{itemChange("a", 1, Created, "x")}); err == nil {
		t.Error("a row that is never seen and always there is no error")
	}
}

func TestHandlerContractIsChecked(t *testing.T) {
	t.Parallel()
	h := &functions{
		decode: decode,
		apply:  func(context.Context, pgx.Tx, []Change) ([]Outcome, error) { return nil, nil },
	}
	if _, err := ApplyOne(t.Context(), nil, h, event("a", 1)); err == nil {
		t.Error("no outcome for a change is no error")
	}
	h.apply = each(func(context.Context, pgx.Tx, Change) (Outcome, error) { panic(context.DeadlineExceeded) })
	if _, err := ApplyOne(t.Context(), nil, h, event("a", 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("what was thrown is lost: %v", err)
	}
	h.decode = func(eventing.Event) (Change, error) { panic("bug") }
	if _, err := ApplyOne(t.Context(), nil, h, event("a", 1)); !eventing.IsPermanent(err) {
		t.Errorf("%v; want a permanent error", err)
	}
}
