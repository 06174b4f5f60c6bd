package inbox_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
)

// A read model that is changed event by event: this is all that a service has to
// bring. Rows does the same for batches.
func Example() {
	h := inbox.Handler{
		Decode: func(e eventing.Event) (inbox.Change, error) {
			var order struct{ Total int }
			if e.Type != "OrderPlaced" {
				return inbox.Change{}, fmt.Errorf("event_type: %q is unknown", e.Type)
			}
			return inbox.Change{Kind: inbox.Created, Payload: &order}, json.Unmarshal(e.Payload, &order)
		},
		Apply: inbox.Each(func(ctx context.Context, tx pgx.Tx, c inbox.Change) (inbox.Outcome, error) {
			tag, err := tx.Exec(ctx, `INSERT INTO orders (id, version) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
				c.Event.AggregateID, c.Event.Version)
			if err != nil || tag.RowsAffected() > 0 {
				return inbox.Applied, err
			}
			return inbox.Stale, nil
		}),
		Repair: func(context.Context, eventing.Event) error {
			return eventing.Permanent(fmt.Errorf("orders have no gaps"))
		},
		Committed: func(keys ...string) { fmt.Println("moved:", keys) },
	}
	h.Committed("order/1")
	// Output: moved: [order/1]
}
