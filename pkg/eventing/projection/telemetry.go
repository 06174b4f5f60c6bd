package projection

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/instrument"
)

// diverged reports that a row had another history than its owner and was replaced; e is
// the event of the owner's state.
func (p *Projection[S]) diverged(ctx context.Context, e eventing.Event) {
	divergences.Add(ctx, 1, p.ofType())
	p.log.ErrorContext(ctx, "row had a history that its owner has lost: it was replaced by the owner's state",
		e.LogAttrs()...)
}

// unknownSeen reports that c has more than this build understands. It counts a change
// whenever it is decoded, also again; the log gets a line a minute.
func (p *Projection[S]) unknownSeen(c inbox.Change) {
	if !c.Partial {
		return
	}
	ctx := c.Event.InTrace(context.Background()) // Decode has none
	partialChanges.Add(ctx, 1, p.ofType())
	p.partialLog.Do(func() {
		p.log.WarnContext(ctx, "event has more than this build understands: its row stays incomplete until a newer build runs",
			append(c.Event.LogAttrs(), "revision", c.Revision)...)
	})
}

// oddLines is how many rows that cannot be written have a line each. A table can refuse all.
const oddLines = 100

// left reports a row that is left as it is.
func (p *Projection[S]) left(ctx context.Context, message, id string, err error) {
	p.oddLog.Do(func() {
		p.log.ErrorContext(ctx, message, "aggregate_type", p.Type(), "aggregate_id", id, "error", err)
	})
}

func (p *Projection[S]) ofType() metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("aggregate_type", p.aggregate.Type()))
}

var (
	meter       = instrument.For("example.com/lockstep/pkg/eventing/projection")
	divergences = meter.Counter("replica.divergences", "{row}",
		"Rows that had a history that their owner has lost, and were replaced by the owner's state")
	partialChanges = meter.Counter("replica.partial_changes", "{change}",
		"Decoded changes that have more than this build understands")
	completedRows = meter.Counter("replica.completed_rows", "{row}",
		"Rows that were incomplete and were brought up to date with their owner")
	incompleteRows = meter.Set("replica.incomplete_rows", "{row}",
		"Rows that lack a part of their owner's state, as of the last pass, up to 10,000")
)
