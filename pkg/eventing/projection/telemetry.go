package projection

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing"
)

// diverged reports that a row had another history than its owner and was replaced; e is
// the event of the owner's state.
func (p *Projection[S]) diverged(ctx context.Context, e eventing.Event) {
	divergences.Add(ctx, 1, metric.WithAttributes(attribute.String("aggregate_type", p.aggregate.Type())))
	p.log.ErrorContext(ctx, "row had a history that its owner has lost: it was replaced by the owner's state",
		"aggregate_type", p.aggregate.Type(), "aggregate_id", e.AggregateID, "epoch", e.Epoch, "version", e.Version, "event_id", e.ID)
}

// divergences works before there is an exporter: otel's instruments delegate to the one
// that is set later.
var divergences = newDivergences()

func newDivergences() metric.Int64Counter {
	counter, err := otel.Meter("example.com/lockstep/pkg/eventing/projection").Int64Counter("replica.divergences",
		metric.WithUnit("{row}"),
		metric.WithDescription("Rows that had a history that their owner has lost, and were replaced by the owner's state"))
	if err != nil {
		otel.Handle(err)
	}
	return counter
}
