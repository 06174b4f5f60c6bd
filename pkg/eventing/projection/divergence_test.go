package projection_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"example.com/lockstep/pkg/eventing/inbox"
)

// A divergence is counted, by type: the log alone reaches no dashboard.
func TestDivergencesAreCounted(t *testing.T) {
	reader := metric.NewManualReader()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	s := newShelf(t)
	s.apply(t, change(inbox.Put, newNote("a/1", 2, 9, "lost").by(0xf9, 4)), change(inbox.Put, newNote("b/1", 2, 1, "one")))
	s.has(newNote("a/1", 2, 3, "mine").by(3, 5), newNote("b/1", 2, 2, "two"))
	before := divergences(t, reader)
	for _, id := range []string{"a/1", "b/1"} { // of which only the first has another history
		e := change(inbox.Updated, s.owner[id]).Event
		if err := s.Repair(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before+1, divergences(t, reader)); diff != "" {
		t.Errorf("divergences (-want +got):\n%s", diff)
	}
}

// divergences reads the count for notes.
func divergences(t *testing.T, reader *metric.ManualReader) (n int64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != "replica.divergences" {
				continue
			}
			for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
				if kind, _ := p.Attributes.Value("aggregate_type"); kind.AsString() == "note" {
					n += p.Value
				}
			}
		}
	}
	return n
}
