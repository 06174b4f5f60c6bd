package instrument_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"example.com/lockstep/pkg/eventing/instrument"
)

// Instruments that were made before the exporter report to it, with their units.
func TestEachKindReports(t *testing.T) {
	m := instrument.For("test")
	counter, level, set := m.Counter("a.counter", "{event}", "a"), m.Level("a.level", "{reader}", "b"), m.Set("a.set", "{key}", "c")
	size, duration := m.Sizes("a.size", "{event}", "d"), m.Durations("a.duration", "e")
	gauge, age, sum := m.Gauge("a.gauge", "{row}", "f"), m.Age("a.age", "g"), m.Sum("a.sum", "s", "h")
	reader := export()
	stop := m.Observe(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(gauge, 1)
		o.ObserveFloat64(age, 1)
		o.ObserveInt64(level, 1)
		o.ObserveFloat64(sum, 1)
		return nil
	}, gauge, age, level, sum)
	counter.Add(t.Context(), 1)
	set.Record(t.Context(), 1)
	size.Record(t.Context(), 1)
	duration.Record(t.Context(), 1)
	all := []string{
		"a.age s", "a.counter {event}", "a.duration s", "a.gauge {row}", "a.level {reader}", "a.set {key}", "a.size {event}", "a.sum s",
	}
	if diff := cmp.Diff(all, read(t, reader)); diff != "" {
		t.Errorf("instruments (-want +got):\n%s", diff)
	}
	stop()
	if got := read(t, reader); slices.Contains(got, "a.gauge {row}") {
		t.Errorf("observed after the end: %v", got)
	}
}

// A name that OpenTelemetry refuses is reported, and its instrument does no harm.
func TestARefusedInstrument(t *testing.T) {
	var said error
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { said = err }))
	export()
	instrument.For("test").Counter("no name!", "1", "").Add(t.Context(), 1)
	if said == nil {
		t.Error("a name that is none went unnoticed")
	}
}

// export begins to export, once for all tests: only the first exporter of a process gets the instruments that were made
// before it.
var export = sync.OnceValue(func() sdk.Reader {
	reader := sdk.NewManualReader()
	otel.SetMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader)))
	return reader
})

func read(t *testing.T, reader sdk.Reader) (names []string) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if strings.HasPrefix(m.Name, "a.") { // not that of the other test
				names = append(names, m.Name+" "+m.Unit)
			}
		}
	}
	slices.Sort(names)
	return names
}
