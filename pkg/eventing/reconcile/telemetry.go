package reconcile

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing/instrument"
)

var (
	meter   = instrument.For("example.com/lockstep/pkg/eventing/reconcile")
	checked = meter.Counter("reconcile.rows.checked", "{row}",
		"Rows of the owner with which a read model was compared, or counters that were counted again")
	differs = meter.Counter("reconcile.rows.differing", "{row}",
		"Rows that certainly differed from the owner's, or from what they are computed from, in each check again")
)

// Begin adds 0 to each series of the counters for c's type, so that the series exist even if no
// check has run yet. See [instrument.Begin].
func Begin(c Checker) {
	instrument.Begin(checked, ofType(c.Type()))
	for _, k := range Kinds() {
		instrument.Begin(differs, ofKind(c.Type(), k))
	}
}

func ofType(name string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("aggregate_type", name))
}

func ofKind(name string, k Kind) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("aggregate_type", name), attribute.String("kind", string(k)))
}

// metered counts the results of a check, and passes them to its Observer. The field of is the type
// under which the results are counted.
type metered struct {
	Observer

	of string
}

// Differ counts the rows by kind.
func (m metered) Differ(ctx context.Context, found []Difference) error {
	for _, d := range found {
		differs.Add(ctx, 1, ofKind(m.of, d.Kind))
	}
	return m.Observer.Differ(ctx, found)
}

// Passed counts the rows.
func (m metered) Passed(ctx context.Context, next string, rows int64) error {
	checked.Add(ctx, rows, ofType(m.of))
	return m.Observer.Passed(ctx, next, rows)
}
