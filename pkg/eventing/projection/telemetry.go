package projection

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/instrument"
)

// diverged reports that a row had another history than its owner and was replaced; e is
// the event of the owner's state.
func (p *Projection[S]) diverged(ctx context.Context, e eventing.Event) {
	divergences.Add(ctx, 1, metric.WithAttributes(attribute.String("aggregate_type", p.aggregate.Type())))
	p.log.ErrorContext(ctx, "row had a history that its owner has lost: it was replaced by the owner's state",
		"aggregate_type", p.aggregate.Type(), "aggregate_id", e.AggregateID, "epoch", e.Epoch, "version", e.Version, "event_id", e.ID)
}

var divergences = instrument.For("example.com/lockstep/pkg/eventing/projection").Counter("replica.divergences", "{row}",
	"Rows that had a history that their owner has lost, and were replaced by the owner's state")
