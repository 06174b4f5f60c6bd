package backlog

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/outbox"
)

// write appends the event of one version of the aggregate a.
func (b *bench) write(t *testing.T, version int64) error {
	t.Helper()
	e := eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: "a", Type: "VideoUpdated",
		Version: version, SchemaVersion: 1, OccurredAt: time.Now().UTC(), Epoch: eventing.FirstEpoch,
	}
	return pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error { return outbox.Append(t.Context(), tx, nil, e) })
}

// The newest event was deleted by hand, so the row is at version 3 and the outbox at version 2. An allowed hole
// lets one event pass. The event after it has to follow again.
func TestAllow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := b.append(t, "a", 3)
	other := b.append(t, "b", 2)
	for _, id := range []uuid.UUID{ids[2], other[1]} {
		b.exec(t, `DELETE FROM outbox WHERE id = $1`, id)
	}
	if err := b.write(t, 4); !errors.Is(err, outbox.ErrVersionSkipped) {
		t.Fatalf("before: %v", err)
	}
	hole, err := b.backlog.PlanAllow(t.Context(), "video", "a", 3)
	if err != nil || hole.Newest.ID != ids[1] || hole.Version != 3 || hole.Missing != 1 {
		t.Fatalf("%+v, %v", hole, err)
	}
	if err := b.backlog.Allow(t.Context(), audit.Actor{By: " "}, hole); err == nil {
		t.Error("a hole was allowed without a name")
	}
	if err := b.write(t, 4); !errors.Is(err, outbox.ErrVersionSkipped) {
		t.Errorf("after a plan and an action without a name: %v", err)
	}
	if err := b.backlog.Allow(t.Context(), order, hole); err != nil {
		t.Fatal(err)
	}
	if _, err := b.backlog.PlanAllow(t.Context(), "video", "a", 3); !errors.Is(err, ErrNoHole) {
		t.Errorf("a second plan: %v", err)
	}
	if err := b.backlog.Allow(t.Context(), order, hole); !errors.Is(err, ErrNoHole) {
		t.Errorf("a second time: %v", err)
	}
	if err := b.write(t, 4); err != nil {
		t.Errorf("after: %v", err)
	}
	if err := b.write(t, 6); !errors.Is(err, outbox.ErrVersionSkipped) {
		t.Errorf("a second hole: %v", err)
	}
	if n := b.count(t, `SELECT count(*) FROM operator_actions 
		WHERE action = 'allow' AND actor = 'ada' AND event_id = $1 AND (aggregate_type, aggregate_id, version) = ('video', 'a', 2)`, ids[1]); n != 1 {
		t.Errorf("%d audit entries", n)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE aggregate_id = 'b' AND NOT gapless`); n != 0 {
		t.Error("another aggregate may have a hole, too")
	}
}

// Allow is refused where the outbox takes the next event anyway.
func TestAllowWithoutAHole(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := b.append(t, "a", 3)
	for aggregate, version := range map[string]int64{"a": 3, "nothing": 3} {
		if _, err := b.backlog.PlanAllow(t.Context(), "video", aggregate, version); !errors.Is(err, ErrNoHole) {
			t.Errorf("%s at version %d: %v", aggregate, version, err)
		}
	}
	// An event came between the plan and the action.
	b.exec(t, `DELETE FROM outbox WHERE id = $1`, ids[2])
	hole, err := b.backlog.PlanAllow(t.Context(), "video", "a", 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.write(t, 3); err != nil {
		t.Fatal(err)
	}
	if err := b.backlog.Allow(t.Context(), order, hole); !errors.Is(err, ErrNoHole) {
		t.Errorf("behind an event that came meanwhile: %v", err)
	}
	if n := b.count(t, `SELECT count(*) FROM operator_actions`) + b.count(t, `SELECT count(*) FROM outbox WHERE NOT gapless`); n != 0 {
		t.Error("a refused action has changed something")
	}
}
