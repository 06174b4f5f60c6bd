package inbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
)

// Route is the Handler of a subscription that carries several types of aggregates. It maps each
// type to its handler. An event of any other type is unknown (ErrUnknown).
type Route map[string]Handler

// Decode calls the handler of the event's type.
func (r Route) Decode(e eventing.Event) (Change, error) {
	h, ok := r[e.AggregateType]
	if !ok {
		return Change{}, errUnknownType(e)
	}
	return h.Decode(e)
}

// Apply calls the handler of each type in turn.
func (r Route) Apply(ctx context.Context, tx pgx.Tx, changes []Change) (all []Outcome, err error) {
	for _, part := range runs(changes, func(c Change) string { return c.Event.AggregateType }) {
		outcomes, err := guarded{r[part[0].Event.AggregateType]}.do(ctx, tx, part)
		if err != nil {
			return nil, err
		}
		all = append(all, outcomes...)
	}
	return all, nil
}

// Repair calls the handler of the event's type.
func (r Route) Repair(ctx context.Context, e eventing.Event) error {
	h, ok := r[e.AggregateType]
	if !ok {
		return eventing.Permanent(errUnknownType(e))
	}
	return h.Repair(ctx, e)
}

// Committed calls the handler of each type that moved, with the positions of that type.
func (r Route) Committed(ctx context.Context, moved ...consistency.Position) {
	byType := map[string][]consistency.Position{}
	for _, at := range moved {
		byType[at.AggregateType] = append(byType[at.AggregateType], at)
	}
	for kind, positions := range byType {
		if h, ok := r[kind]; ok {
			h.Committed(ctx, positions...)
		}
	}
}

func errUnknownType(e eventing.Event) error {
	return fmt.Errorf("aggregate_type: %q: %w", e.AggregateType, ErrUnknown)
}
