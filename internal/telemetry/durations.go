package telemetry

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Durations is a histogram of times for the two metrics of this system that are measured most
// often: statements and requests. Its callers keep the series, so a measurement takes two atomic
// additions. A histogram of the SDK builds and looks up the attributes of each measurement, and the
// histogram of statements alone was half of the cost of all metrics.
//
// Readers of [Setup] show all Durations of the process, as cumulative histograms with these buckets,
// without the least and the greatest value. The SDK's views and its limit of series do not apply to
// them, nor do the variables OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE and
// OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION.
type Durations struct {
	scope, name, about string
	bounds             []float64

	mu     sync.Mutex
	series map[attribute.Distinct]*Series
}

// Series has the measurements with one set of attributes.
type Series struct {
	attributes attribute.Set
	began      time.Time
	bounds     []float64
	counts     []atomic.Uint64 // of each bucket, and of all times above the last bound
	sum        atomic.Int64    // in nanoseconds
}

// NewDurations returns a histogram. bounds are the upper bounds of its buckets, in seconds and
// ascending. A process must not make two of one name, so a histogram is a variable of its package.
func NewDurations(scope, name, about string, bounds ...float64) *Durations {
	return recorded.durations(scope, name, about, bounds)
}

// Of returns the series with attributes. A series never ends, so the caller must bound the number
// of different attributes.
func (d *Durations) Of(attributes attribute.Set) *Series {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.series[attributes.Equivalent()]
	if s == nil {
		s = &Series{attributes: attributes, began: time.Now(), bounds: d.bounds, counts: make([]atomic.Uint64, len(d.bounds)+1)}
		d.series[attributes.Equivalent()] = s
	}
	return s
}

// Record adds a measurement. A time that equals a bound is in the bucket below the bound.
func (s *Series) Record(took time.Duration) {
	bucket, _ := slices.BinarySearch(s.bounds, took.Seconds())
	s.counts[bucket].Add(1)
	s.sum.Add(int64(took))
}

// read returns the measurements up to now. A measurement that is made at the same time may be in
// the count and not in the sum.
func (s *Series) read(now time.Time) metricdata.HistogramDataPoint[float64] {
	p := metricdata.HistogramDataPoint[float64]{
		Attributes: s.attributes, StartTime: s.began, Time: now, Bounds: s.bounds, BucketCounts: make([]uint64, len(s.counts)),
	}
	for i := range s.counts {
		p.BucketCounts[i] = s.counts[i].Load()
		p.Count += p.BucketCounts[i]
	}
	p.Sum = time.Duration(s.sum.Load()).Seconds()
	return p
}

// read returns the histogram, unless nothing has been measured.
func (d *Durations) read(now time.Time) (metricdata.Metrics, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	data := metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality}
	for _, s := range d.series {
		if p := s.read(now); p.Count > 0 {
			data.DataPoints = append(data.DataPoints, p)
		}
	}
	return metricdata.Metrics{Name: d.name, Description: d.about, Unit: "s", Data: data}, len(data.DataPoints) > 0
}

// recorded has all Durations of the process.
var recorded producer

type producer struct {
	mu  sync.Mutex
	all []*Durations
}

// Recorded returns the producer of all Durations of the process, for a reader of metrics.
func Recorded() metric.Producer { return &recorded }

func (r *producer) durations(scope, name, about string, bounds []float64) *Durations {
	d := &Durations{scope: scope, name: name, about: about, bounds: bounds, series: map[attribute.Distinct]*Series{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, d)
	return d
}

// Produce implements metric.Producer.
func (r *producer) Produce(context.Context) (all []metricdata.ScopeMetrics, _ error) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.all {
		if m, measured := d.read(now); measured {
			all = append(all, metricdata.ScopeMetrics{Scope: instrumentation.Scope{Name: d.scope}, Metrics: []metricdata.Metrics{m}})
		}
	}
	return all, nil
}
