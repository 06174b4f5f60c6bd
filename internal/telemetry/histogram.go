package telemetry

import (
	"context"
	"math"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// maxSeries bounds the series of a histogram, as OpenTelemetry does.
const maxSeries = 2000

// Histograms are those of this process, for a metric.Reader. Their temporality is cumulative.
var Histograms = &histograms{}

type histograms struct {
	mu  sync.Mutex
	all map[string]*Histogram
}

// A Histogram has series that its user keeps, so that a measurement is two additions. An
// instrument of OpenTelemetry looks up the series of each measurement by its attributes, which
// takes more than ten times as long, and a video is measured twenty times on its way.
type Histogram struct {
	scope, name, about, unit string
	bounds                   []float64
	began                    time.Time

	mu     sync.Mutex
	series map[attribute.Distinct]*Series
}

// NewHistogram returns the histogram of that name. The first call for a name decides on the
// rest, which is that of OpenTelemetry's instruments.
func NewHistogram(scope, name, unit, about string, bounds ...float64) *Histogram {
	Histograms.mu.Lock()
	defer Histograms.mu.Unlock()
	h, known := Histograms.all[name]
	if !known {
		if Histograms.all == nil {
			Histograms.all = map[string]*Histogram{}
		}
		h = &Histogram{
			scope: scope, name: name, about: about, unit: unit, bounds: bounds, began: time.Now(),
			series: map[attribute.Distinct]*Series{},
		}
		Histograms.all[name] = h
	}
	return h
}

// Series are the measurements with the same attributes. A nil one measures nothing.
type Series struct {
	bounds     []float64
	attributes attribute.Set
	counts     []atomic.Uint64 // by the index in bounds
	sum        atomic.Uint64   // the bits of a float64
}

// Series returns that of the attributes, which is nil where OpenTelemetry's provider of meters
// is the one that does nothing. Beyond 2,000 all further ones are one.
func (h *Histogram) Series(attributes ...attribute.KeyValue) *Series {
	if _, off := otel.GetMeterProvider().(noop.MeterProvider); off {
		return nil
	}
	set := attribute.NewSet(attributes...)
	h.mu.Lock()
	defer h.mu.Unlock()
	if s, known := h.series[set.Equivalent()]; known {
		return s
	}
	if len(h.series) >= maxSeries {
		set = attribute.NewSet(attribute.Bool("otel.metric.overflow", true))
		if s, known := h.series[set.Equivalent()]; known {
			return s
		}
	}
	s := &Series{bounds: h.bounds, attributes: set, counts: make([]atomic.Uint64, len(h.bounds)+1)}
	h.series[set.Equivalent()] = s
	return s
}

// Record measures a value.
func (s *Series) Record(value float64) {
	if s == nil {
		return
	}
	s.counts[sort.SearchFloat64s(s.bounds, value)].Add(1)
	for {
		sum := s.sum.Load()
		if s.sum.CompareAndSwap(sum, math.Float64bits(math.Float64frombits(sum)+value)) {
			return
		}
	}
}

// Produce is that of a metric.Producer.
func (h *histograms) Produce(context.Context) (scopes []metricdata.ScopeMetrics, _ error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, at := time.Now(), map[string]int{}
	for _, one := range h.all {
		points := one.points(now)
		if len(points) == 0 {
			continue
		}
		i, known := at[one.scope]
		if !known {
			i = len(scopes)
			at[one.scope] = i
			scopes = append(scopes, metricdata.ScopeMetrics{Scope: instrumentation.Scope{Name: one.scope}})
		}
		scopes[i].Metrics = append(scopes[i].Metrics, metricdata.Metrics{
			Name: one.name, Description: one.about, Unit: one.unit,
			Data: metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality, DataPoints: points},
		})
	}
	return scopes, nil
}

// points are the series that have measured something.
func (h *Histogram) points(now time.Time) (points []metricdata.HistogramDataPoint[float64]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.series {
		p := metricdata.HistogramDataPoint[float64]{
			Attributes: s.attributes, StartTime: h.began, Time: now, Bounds: h.bounds, BucketCounts: make([]uint64, len(s.counts)),
		}
		for i := range s.counts {
			p.BucketCounts[i] = s.counts[i].Load()
			p.Count += p.BucketCounts[i]
		}
		p.Sum = math.Float64frombits(s.sum.Load())
		if p.Count > 0 {
			points = append(points, p)
		}
	}
	return points
}
