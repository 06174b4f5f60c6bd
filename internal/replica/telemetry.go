package replica

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing/inbox"
)

// diverged reports that the row of id had another history than its owner, which
// stands at at, and was replaced.
func (t *Table[S]) diverged(ctx context.Context, id string, at inbox.Position) {
	divergences.Add(ctx, 1, metric.WithAttributes(attribute.String("aggregate_type", t.Type)))
	t.Log.ErrorContext(ctx, "row had a history that its owner has lost: it was replaced by the owner's state",
		"aggregate_type", t.Type, "aggregate_id", id, "epoch", at.Epoch, "version", at.Version, "event_id", at.EventID)
}

// divergences works before there is an exporter: otel's instruments delegate to
// whichever comes.
var divergences = newDivergences()

func newDivergences() metric.Int64Counter {
	counter, err := otel.Meter("example.com/lockstep/internal/replica").Int64Counter("replica.divergences",
		metric.WithUnit("{row}"),
		metric.WithDescription("Rows that had a history that their owner has lost, and were replaced by the owner's state"))
	if err != nil {
		otel.Handle(err)
	}
	return counter
}
