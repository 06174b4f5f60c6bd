package instrument

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// MaxValues bounds the values that a [Few] has by name: ten lines of a chart can be told
// apart, and each series costs the collector memory for each instance.
const MaxValues = 10

// Other is the label of all further values.
const Other = "other"

// Few is a label with values that grow with the data, such as tenants. The first [MaxValues]
// that it meets have their names, because a counter never leaves a name again; the rest
// are together in [Other].
type Few struct {
	key string

	mu    sync.Mutex
	names map[string]metric.MeasurementOption
}

// NewFew returns the label.
func NewFew(key string) *Few { return &Few{key: key, names: map[string]metric.MeasurementOption{}} }

// Of is the label with a value.
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
