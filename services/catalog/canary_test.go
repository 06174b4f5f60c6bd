package catalog

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"example.com/lockstep/internal/canary"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
)

// fixed is a handler with given outcomes.
type fixed struct {
	inbox.Handler

	outcome inbox.Outcome
	err     error
}

func (f *fixed) Apply(_ context.Context, _ pgx.Tx, changes []inbox.Change) ([]inbox.Outcome, error) {
	outcomes := make([]inbox.Outcome, len(changes))
	for i := range outcomes {
		outcomes[i] = f.outcome
	}
	return outcomes, f.err
}

func (f *fixed) Repair(context.Context, eventing.Event) error { return f.err }

func (*fixed) Committed(context.Context, ...consistency.Position) {}

// A version of the canary is measured once, when it is visible: not in a transaction that was
// rolled back, and not where nothing moved. Other videos are not measured.
func TestTheCanaryIsMeasuredOnce(t *testing.T) {
	t.Parallel()
	reader := metric.NewManualReader()
	visible, err := metric.NewMeterProvider(metric.WithReader(reader)).Meter("test").Float64Histogram("visible")
	if err != nil {
		t.Fatal(err)
	}
	h := &fixed{}
	timed := &timed{Handler: h, visible: visible}
	bird := eventing.Event{AggregateType: videoType, AggregateID: canary.Video.String(), OccurredAt: time.Now().Add(-time.Minute)}
	other := eventing.Event{AggregateType: videoType, AggregateID: "0190a5d0-0000-7000-8000-000000000001", OccurredAt: bird.OccurredAt}
	apply := func(outcome inbox.Outcome, commits bool, events ...eventing.Event) {
		h.outcome = outcome
		changes, moved := make([]inbox.Change, len(events)), make([]consistency.Position, len(events))
		for i, e := range events {
			changes[i].Event, moved[i] = e, consistency.PositionOf(e)
		}
		if _, err := timed.Apply(t.Context(), nil, changes); err != nil {
			t.Fatal(err)
		}
		if commits {
			timed.Committed(t.Context(), moved...)
		}
	}
	measured := func(want uint64) {
		t.Helper()
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		var n uint64
		if len(all.ScopeMetrics) > 0 {
			p := all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Histogram[float64]).DataPoints[0]
			if n = p.Count; p.Sum < 60*float64(n) {
				t.Errorf("%d versions have taken %v s", n, p.Sum)
			}
		}
		if n != want {
			t.Errorf("%d versions are measured, want %d", n, want)
		}
	}
	apply(inbox.Applied, true, other)
	apply(inbox.Stale, true, bird)
	apply(inbox.Applied, false, bird)
	measured(0)
	apply(inbox.Applied, true, other, bird)
	timed.Committed(t.Context(), consistency.PositionOf(bird))
	measured(1)
	apply(inbox.Applied, true, bird, bird)
	measured(3)

	apply(inbox.Applied, false, bird)
	if err := timed.Repair(t.Context(), bird); err != nil {
		t.Fatal(err)
	}
	timed.Committed(t.Context(), consistency.PositionOf(bird))
	measured(4)
	h.err = errors.New("the owner is away")
	if err := timed.Repair(t.Context(), bird); !errors.Is(err, h.err) {
		t.Error(err)
	}
	measured(4)
}
