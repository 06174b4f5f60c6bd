package catalog

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/internal/canary"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/instrument"
)

// timed measures how long each version of the canary takes to become visible. The time begins at
// the version's occurred_at, just before video's commit. It ends at the end of the commit that
// shows the version here. timed handles the canary like any other video.
type timed struct {
	inbox.Handler

	visible metric.Float64Histogram

	mu sync.Mutex
	// applied has the occurred_at of the versions of the canary that the running transaction has
	// applied, or the last one, if that was rolled back. Committed empties applied. Only one
	// transaction at a time applies versions of the canary, because they are of one aggregate.
	applied []time.Time
}

func newTimed(h inbox.Handler) *timed {
	return &timed{Handler: h, visible: instrument.For("example.com/lockstep/services/catalog").Durations("canary.visible",
		"Time of a version of the canary from its occurred_at, just before video's commit, to the commit that shows it")}
}

// Apply notes the times of the canary's versions that it applies.
func (t *timed) Apply(ctx context.Context, tx pgx.Tx, changes []inbox.Change) ([]inbox.Outcome, error) {
	outcomes, err := t.Handler.Apply(ctx, tx, changes)
	if err != nil || !slices.ContainsFunc(changes, func(c inbox.Change) bool { return canary.Is(c.Event) }) {
		return outcomes, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.applied = t.applied[:0] // a transaction that was rolled back left its versions
	for i, c := range changes {
		if canary.Is(c.Event) && i < len(outcomes) && outcomes[i] == inbox.Applied {
			t.applied = append(t.applied, c.Event.OccurredAt)
		}
	}
	return outcomes, nil
}

// Repair measures a version that was taken from the owner. It drops the versions of a transaction
// that failed before, because these were not applied.
func (t *timed) Repair(ctx context.Context, e eventing.Event) error {
	err := t.Handler.Repair(ctx, e)
	if err == nil && canary.Is(e) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.applied = t.applied[:0]
		t.visible.Record(ctx, time.Since(e.OccurredAt).Seconds())
	}
	return err
}

// Committed measures the versions that were applied.
func (t *timed) Committed(ctx context.Context, moved ...consistency.Position) {
	if slices.ContainsFunc(moved, func(at consistency.Position) bool {
		return at.AggregateType == canary.AggregateType && at.AggregateID == canary.Video.String()
	}) {
		t.mu.Lock()
		for _, at := range t.applied {
			t.visible.Record(ctx, time.Since(at).Seconds())
		}
		t.applied = t.applied[:0]
		t.mu.Unlock()
	}
	t.Handler.Committed(ctx, moved...)
}
