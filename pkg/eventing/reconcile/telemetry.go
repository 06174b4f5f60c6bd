package reconcile

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing/instrument"
)

var (
	meter   = instrument.For("example.com/lockstep/pkg/eventing/reconcile")
	checked = meter.Counter("reconcile.rows.checked", "{row}", "The owner's rows that a read model was compared with")
	differs = meter.Counter("reconcile.rows.differing", "{row}", "Rows that certainly differed from their owner's, in each check again")
)

// differ reports rows that certainly differ.
func (r *run) differ(ctx context.Context, found []Difference) error {
	for _, d := range found {
		differs.Add(ctx, 1, metric.WithAttributes(attribute.String("aggregate_type", r.Model.Type()), attribute.String("kind", string(d.Kind))))
	}
	return r.observer.Differ(ctx, found)
}

// passed reports that the rows below next are checked.
func (r *run) passed(ctx context.Context, next string, rows int64) error {
	checked.Add(ctx, rows, metric.WithAttributes(attribute.String("aggregate_type", r.Model.Type())))
	return r.observer.Passed(ctx, next, rows)
}
