package telemetry

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// A reader gets the same of Durations as of the SDK's histogram for the same measurements, among
// them times that equal a bound. Eight goroutines measure at once.
func TestDurationsAreAHistogram(t *testing.T) {
	t.Parallel()
	const name = "test.durations"
	bounds := []float64{0.005, 0.01, 0.5}
	var ours producer
	histograms := ours.durations(t.Name(), name, "about", bounds)
	theirs := sdk.NewManualReader()
	meter := sdk.NewMeterProvider(sdk.WithReader(theirs)).Meter(t.Name())
	histogram, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription("about"),
		metric.WithExplicitBucketBoundaries(bounds...))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			labels := attribute.NewSet(attribute.Int("half", i%2))
			series := histograms.Of(labels)
			for range 1000 {
				took := time.Duration(rand.IntN(1200)) * time.Millisecond / time.Duration(1+rand.IntN(100))
				if i == 0 {
					took = time.Duration(bounds[rand.IntN(len(bounds))] * float64(time.Second))
				}
				series.Record(took)
				histogram.Record(t.Context(), took.Seconds(), metric.WithAttributeSet(labels))
			}
		})
	}
	all.Wait()
	var want metricdata.ResourceMetrics
	if err := theirs.Collect(t.Context(), &want); err != nil {
		t.Fatal(err)
	}
	got, err := ours.Produce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.ScopeMetrics, got, asHistograms); diff != "" {
		t.Errorf("histogram (-the SDK's +ours):\n%s", diff)
	}
}

// asHistograms compares what a histogram shows, whatever the order of the series. Times are equal if
// they differ by a minute at most. The least and the greatest value are in the SDK's alone.
var asHistograms = cmp.Options{
	cmpopts.IgnoreTypes(metricdata.Extrema[float64]{}),
	cmpopts.EquateApproxTime(time.Minute),
	cmpopts.EquateApprox(0, 1e-6),
	cmpopts.EquateEmpty(),
	cmpopts.SortSlices(func(a, b metricdata.HistogramDataPoint[float64]) bool { return a.Sum < b.Sum }),
	cmp.Comparer(func(a, b attribute.Set) bool { return a.Equivalent() == b.Equivalent() }),
}

// A histogram without a measurement is not shown, as with the SDK.
func TestDurationsWithoutAMeasurement(t *testing.T) {
	t.Parallel()
	var ours producer
	ours.durations(t.Name(), "test.unused", "about", []float64{1}).Of(attribute.NewSet())
	if shown, err := ours.Produce(t.Context()); err != nil || len(shown) > 0 {
		t.Errorf("it is shown: %v, %v", shown, err)
	}
}

// BenchmarkDurations compares a measurement with one of the SDK.
func BenchmarkDurations(b *testing.B) {
	labels := attribute.NewSet(attribute.String("db.system.name", "postgresql"), attribute.String("pgx.operation.type", "query"))
	b.Run("ours", func(b *testing.B) {
		s := NewDurations(b.Name(), "test.cost", "about", 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10).Of(labels)
		for b.Loop() {
			s.Record(3 * time.Millisecond)
		}
	})
	b.Run("sdk", func(b *testing.B) {
		h, err := sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader())).Meter("test").Float64Histogram("test.cost")
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			h.Record(b.Context(), 0.003, metric.WithAttributeSet(labels))
		}
	})
}
