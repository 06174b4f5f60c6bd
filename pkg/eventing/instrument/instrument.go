// Package instrument makes OpenTelemetry's instruments, each in one line.
//
// An error, such as a name that OpenTelemetry refuses, goes to OpenTelemetry's handler. The
// instrument can be used in any case, but after an error it does nothing. If an instrument is made
// before there is an exporter, it reports to the exporter that is set later.
package instrument

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// The buckets of histograms. OpenTelemetry's own buckets are made for milliseconds.
var (
	// seconds covers durations from 1 ms (a commit) to 30 minutes (an outage).
	seconds = metric.WithExplicitBucketBoundaries(
		0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
	// sizes covers a single event up to the largest batch.
	sizes = metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
)

// Meter makes the instruments of one package.
type Meter struct{ meter metric.Meter }

// For returns the meter of the package with the given import path.
func For(path string) Meter { return Meter{otel.Meter(path)} }

// Counter counts things of a unit such as "{event}".
func (m Meter) Counter(name, unit, about string) metric.Int64Counter {
	return made(m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about)))
}

// Begin adds 0 to each of the given series of a counter. If none is given, it adds 0 to the series
// without attributes. Prometheus sees no increase in a series that begins with its first event, so
// an alert on that event would never fire.
func Begin(c metric.Int64Counter, series ...metric.MeasurementOption) {
	if len(series) == 0 {
		c.Add(context.Background(), 0)
	}
	for _, s := range series {
		c.Add(context.Background(), 0, s)
	}
}

// Level is for the number of things that come and go, such as waiting readers. Callbacks of Observe
// report the number. OpenTelemetry adds up the numbers of all callbacks.
func (m Meter) Level(name, unit, about string) metric.Int64ObservableUpDownCounter {
	return made(m.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(about)))
}

// Sum is a counter for a total that the caller keeps itself, and that only grows. Callbacks of Observe
// report the total. OpenTelemetry adds up the totals of all callbacks.
func (m Meter) Sum(name, unit, about string) metric.Float64ObservableCounter {
	return made(m.meter.Float64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(about)))
}

// Sizes is a histogram of batch sizes.
func (m Meter) Sizes(name, unit, about string) metric.Int64Histogram {
	return made(m.meter.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(about), sizes))
}

// Durations is a histogram of times, in seconds.
func (m Meter) Durations(name, about string) metric.Float64Histogram {
	return made(m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about), seconds))
}

// Set is a gauge that its caller sets.
func (m Meter) Set(name, unit, about string) metric.Int64Gauge {
	return made(m.meter.Int64Gauge(name, metric.WithUnit(unit), metric.WithDescription(about)))
}

// Gauge is a gauge with a value that a callback of Observe reports.
func (m Meter) Gauge(name, unit, about string) metric.Int64ObservableGauge {
	return made(m.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(about)))
}

// Age is a Gauge in seconds.
func (m Meter) Age(name, about string) metric.Float64ObservableGauge {
	return made(m.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(about)))
}

// Observe calls f whenever the instruments are read, until stop is called.
func (m Meter) Observe(f metric.Callback, instruments ...metric.Observable) (stop func()) {
	registration, err := m.meter.RegisterCallback(f, instruments...)
	if err != nil {
		otel.Handle(err)
		return func() {}
	}
	return func() { _ = registration.Unregister() } // it fails for a registration that is gone
}

func made[I any](instrument I, err error) I {
	if err != nil {
		otel.Handle(err)
	}
	return instrument
}

// MaxValues is how many values of a [Few] keep their names. In a chart ten lines can be told apart,
// and each series takes memory of the collector for each instance.
const MaxValues = 10

// Other is the name that a [Few] gives to all values after the first [MaxValues].
const Other = "other"

// Few is a label for values whose number grows with the data, such as tenants. The first
// [MaxValues] values keep their names for ever, because a series of a counter never ends. All later
// values share the name [Other].
type Few struct {
	key string

	mu    sync.Mutex
	names map[string]metric.MeasurementOption
}

// NewFew returns a label with the name key.
func NewFew(key string) *Few { return &Few{key: key, names: map[string]metric.MeasurementOption{}} }

// Of returns the label with value, or with [Other] if there are [MaxValues] other values already.
func (f *Few) Of(value string) metric.MeasurementOption {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, known := f.names[value]
	if known {
		return o
	}
	if len(f.names) >= MaxValues {
		return f.option(Other)
	}
	o = f.option(value)
	f.names[value] = o
	return o
}

func (f *Few) option(value string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String(f.key, value)))
}
