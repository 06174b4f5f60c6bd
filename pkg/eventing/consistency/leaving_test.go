package consistency

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"example.com/lockstep/pkg/eventing/notify"
)

// A reader that gives up before the first read leaves nothing to be read.
func TestCancelledReaderCausesNoRead(t *testing.T) {
	t.Parallel()
	w := NewWaiters(1, nil, notify.New(nil, "", "test", slog.New(slog.DiscardHandler)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if ok, err := w.Wait(ctx, at("v", "a", 1), at("v", "b", 1)); ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
	if !w.empty() {
		t.Errorf("%d aggregates without a reader are to be looked at", len(w.dirty))
	}
}

// Each of the aggregates that a reader waits for counts once, however often it moves.
func TestAnAggregateThatMovesTwiceCountsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, c := watched(t, 1, true)
		ended := w.begin(t.Context(), at("v", "a", 1), at("v", "b", 1))
		for version := range int64(3) {
			c.set("a", version+1, nil)
			w.Notify(t.Context(), at("v", "a", 0))
			synctest.Wait()
		}
		if len(ended) != 0 {
			t.Fatalf("the wait ends without its second aggregate: %+v", <-ended)
		}
		c.set("b", 1, nil)
		w.Notify(t.Context(), at("v", "b", 0))
		if r := <-ended; !r.reached || r.took != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// A look follows at once, and not with the next poll, when a reader comes while the
// watch rests, and when this process commits.
func TestReaderOrCommitCausesALookAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, c := watched(t, 1, true)
		synctest.Wait()
		ended := w.begin(t.Context(), at("v", "a", 1))
		synctest.Wait()
		if n := c.looked(); n != 1 {
			t.Errorf("%d looks for a reader that comes, want 1", n)
		}
		c.set("a", 1, nil)
		w.Notify(t.Context(), at("v", "a", 0))
		if r := <-ended; !r.reached || r.took != 0 {
			t.Errorf("%+v, want no wait", r)
		}
	})
}

// It sets the process's meter provider, so it must not run in parallel with others.
func TestWaitersAreCounted(t *testing.T) {
	reader := metric.NewManualReader()
	before := otel.GetMeterProvider()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	t.Cleanup(func() { otel.SetMeterProvider(before) })
	synctest.Test(t, func(t *testing.T) {
		w, _ := watched(t, 2, true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first, second := w.begin(ctx, at("v", "a", 1)), w.begin(ctx, at("v", "a", 1))
		synctest.Wait()
		if n := waitingNow(t, reader); n != 2 {
			t.Errorf("%d readers are counted, want the 2 that wait", n)
		}
		<-first
		<-second
		if n := waitingNow(t, reader); n != 0 {
			t.Errorf("%d readers are counted, want none after both have gone", n)
		}
	})
}

// waitingNow is the value of consistency.waiters.
func waitingNow(t *testing.T, reader *metric.ManualReader) int64 {
	t.Helper()
	var collected metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &collected); err != nil {
		t.Fatal(err)
	}
	for _, scope := range collected.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "consistency.waiters" && len(sum.DataPoints) == 1 {
				return sum.DataPoints[0].Value
			}
		}
	}
	return -1
}
