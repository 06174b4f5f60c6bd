package telemetry_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"example.com/lockstep/internal/telemetry"
)

// A reader gets the same from a histogram as from OpenTelemetry's own with the same
// measurements, made at the same time as they are read.
func TestAHistogramIsOneOfOpenTelemetry(t *testing.T) { //nolint:paralleltest // it needs a provider
	reader := sdk.NewManualReader(sdk.WithProducer(telemetry.Histograms))
	provider := sdk.NewMeterProvider(sdk.WithReader(reader), sdk.WithView(sdk.NewView(sdk.Instrument{Name: "its"},
		sdk.Stream{Aggregation: sdk.AggregationExplicitBucketHistogram{Boundaries: []float64{1, 2, 5}, NoMinMax: true}})))
	its, err := provider.Meter("test").Float64Histogram("its")
	if err != nil {
		t.Fatal(err)
	}
	ours := telemetry.NewHistogram("test", "ours", "s", "Ours.", 1, 2, 5)
	var measuring sync.WaitGroup
	for worker := range 4 {
		measuring.Go(func() {
			set := attribute.NewSet(attribute.Int("of", worker%2))
			series := ours.Series(attribute.Int("of", worker%2))
			for i := range 4000 {
				value := float64(i%25) / 4
				its.Record(t.Context(), value, metric.WithAttributeSet(set))
				series.Record(value)
			}
		})
	}
	points(t, reader, "ours") // in between
	measuring.Wait()
	metricdatatest.AssertEqual(t, points(t, reader, "its"), points(t, reader, "ours"), metricdatatest.IgnoreTimestamp())
}

// newReader reads our histograms alone.
func newReader() sdk.Reader {
	reader := sdk.NewManualReader(sdk.WithProducer(telemetry.Histograms))
	sdk.NewMeterProvider(sdk.WithReader(reader))
	return reader
}

// points are those of the histogram with that name.
func points(t *testing.T, reader sdk.Reader, name string) metricdata.Histogram[float64] {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, in := range all.ScopeMetrics {
		for _, m := range in.Metrics {
			if m.Name == name {
				return m.Data.(metricdata.Histogram[float64])
			}
		}
	}
	return metricdata.Histogram[float64]{}
}

// The same attributes always have the same series. Attributes that a client could choose do not
// use up the memory: beyond 2,000 there is one series.
func TestSeriesOfAHistogram(t *testing.T) { //nolint:paralleltest // it needs a provider
	h := telemetry.NewHistogram("test", "series", "s", "Series.", 1)
	if h != telemetry.NewHistogram("test", "series", "s", "Series.", 1) {
		t.Error("one name has two histograms")
	}
	series := map[*telemetry.Series]bool{}
	for range 2 {
		for i := range 3000 {
			s := h.Series(attribute.Int("of", i))
			s.Record(1)
			series[s] = true
		}
	}
	if len(series) != 2001 {
		t.Errorf("%d series, want 2001", len(series))
	}
	got := map[uint64]int{}
	for _, p := range points(t, newReader(), "series").DataPoints {
		got[p.Count]++
	}
	if diff := cmp.Diff(map[uint64]int{2: 2000, 2000: 1}, got); diff != "" {
		t.Errorf("series by their measurements (-want +got):\n%s", diff)
	}
}

// Where OpenTelemetry measures nothing, nothing is measured here.
func TestNothingIsMeasuredWithoutAProvider(t *testing.T) { //nolint:paralleltest // it sets the provider
	defer otel.SetMeterProvider(otel.GetMeterProvider())
	otel.SetMeterProvider(noop.NewMeterProvider())
	h := telemetry.NewHistogram("test", "nothing", "s", "Nothing.", 1)
	h.Series(attribute.String("of", fmt.Sprint(1))).Record(1)
	if n := len(points(t, newReader(), "nothing").DataPoints); n > 0 {
		t.Errorf("%d series have measured", n)
	}
}
