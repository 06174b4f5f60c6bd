package inbox_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
)

// orders is a read model that is changed event by event.
type orders struct{}

func (orders) Decode(e eventing.Event) (inbox.Change, error) {
	var order struct{ Total int }
	if e.Type != "OrderPlaced" {
		return inbox.Change{}, fmt.Errorf("event_type: %q is unknown", e.Type)
	}
	return inbox.Change{Kind: inbox.Created, Payload: &order}, json.Unmarshal(e.Payload, &order)
}

func (o orders) Apply(ctx context.Context, tx pgx.Tx, changes []inbox.Change) ([]inbox.Outcome, error) {
	return inbox.Each(ctx, tx, changes, o.apply)
}

func (orders) apply(ctx context.Context, tx pgx.Tx, c inbox.Change) (inbox.Outcome, error) {
	tag, err := tx.Exec(ctx, `INSERT INTO orders (id, version) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
		c.Event.AggregateID, c.Event.Version)
	if err != nil || tag.RowsAffected() > 0 {
		return inbox.Applied, err
	}
	return inbox.Stale, nil
}

func (orders) Repair(context.Context, eventing.Event) error {
	return eventing.Permanent(fmt.Errorf("orders have no gaps"))
}

func (orders) Committed(_ context.Context, moved ...consistency.Position) {
	fmt.Println("moved:", moved[0].Key(), "to version", moved[0].Version)
}

// A Handler is all that a service has to bring. ApplyChanges does for batches what Each
// does for one event at a time.
func ExampleHandler() {
	var h inbox.Handler = orders{}
	h.Committed(context.Background(), consistency.Position{AggregateType: "order", AggregateID: "1", Epoch: 1, Version: 1})
	// Output: moved: order/1 to version 1
}
