package inbox

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"example.com/lockstep/pkg/eventing"
)

// A producer that leaves out versions costs its owner a call now and then, not one
// for each event.
func TestVersionHolesCostFewCalls(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var calls atomic.Int64
	c := b.consumer(t)
	c.functions().repair = func(ctx context.Context, e eventing.Event) error {
		calls.Add(1)
		return b.repair(ctx, e)
	}
	began := time.Now()
	const events = 200
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() { c.work(ctx) })
	for i := range int64(events) {
		b.setOwner("a", 2*i+1) // and no further: the next one is a gap again
		c.incoming <- delivered(event("a", 2*i+1))
		c.incoming <- delivered(event("other", i+1)) // is done behind it
		b.eventually(t, int(i)+1, version, "other")
	}
	b.eventually(t, 2*events, withDone)
	cancel()
	working.Wait()
	most := int64(time.Since(began)/repairEvery) + 2
	t.Logf("%d calls for %d events with a hole before each, in %v", calls.Load(), events, time.Since(began))
	if calls.Load() > most {
		t.Errorf("%d calls, want at most %d", calls.Load(), most)
	}
}

// A divergence that a repair leaves is reported and counted once. So it is while the
// owner's answer may be a former primary's. Another event's is another one.
func TestADivergenceIsReportedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	heard, counted := &complaints{}, metric.NewManualReader()
	c.log = slog.New(heard)
	var err error
	if c.metrics.events, err = metric.NewMeterProvider(metric.WithReader(counted)).Meter("").Int64Counter("events"); err != nil {
		t.Fatal(err)
	}
	left := map[int64]int{1: 2, 2: 1} // times that a version diverges
	c.functions().apply = each(func(_ context.Context, _ pgx.Tx, change Change) (Outcome, error) {
		left[change.Event.Version]--
		if left[change.Event.Version] >= 0 {
			return Diverged, nil
		}
		return Stale, nil
	})
	c.functions().repair = func(context.Context, eventing.Event) error { return nil }
	var observed []int64
	c.options.OnDiverged = func(_ context.Context, e eventing.Event) { observed = append(observed, e.Version) }
	c.finish(t, delivered(event("a", 1)), delivered(event("a", 2)))
	c.calls.Start(t.Context())(t.Context())
	if n := heard.n.Load(); n != 2 || left[1] >= 0 || !slices.Equal(observed, []int64{1, 2}) {
		t.Errorf("%d reports of two divergences, %v observed", n, observed)
	}
	if n := total(t, counted, attribute.String("outcome", Diverged.String())); n != 2 {
		t.Errorf("%d are counted", n)
	}
}

// total is the sum of a reader's one counter over the series with an attribute.
func total(t *testing.T, reader metric.Reader, with attribute.KeyValue) (n int64) {
	t.Helper()
	var collected metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &collected); err != nil {
		t.Fatal(err)
	}
	for _, point := range collected.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[int64]).DataPoints {
		if v, ok := point.Attributes.Value(with.Key); ok && v == with.Value {
			n += point.Value
		}
	}
	return n
}

// The memory of repairs does not grow: old ones are forgotten.
func TestRecentRepairsAreForgotten(t *testing.T) {
	t.Parallel()
	r := newRecentRepairs()
	r.note("a")
	if d := r.wait("a"); d < repairEvery/2 || r.wait("b") != 0 {
		t.Errorf("wait %v after a repair of just now, %v without one", d, r.wait("b"))
	}
	for range 2 {
		if r.wait("a") == 0 {
			t.Error("forgotten although it is recent")
		}
		r.swept = r.swept.Add(-3 * repairEvery)
		r.note("b")
	}
	r.at["a"], r.swept = r.at["a"].Add(-3*repairEvery), r.swept.Add(-3*repairEvery)
	r.note("b")
	if len(r.at) != 1 || r.wait("a") != 0 {
		t.Errorf("remembered: %v", r.at)
	}
}
