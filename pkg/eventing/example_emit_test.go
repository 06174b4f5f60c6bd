package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/outbox"
)

// billing is a service that consumes and emits: each OrderPlaced raises its
// debtor's debt, and says so in an event of its own, in the transaction that
// accepts the order.
type billing struct{}

func (billing) Decode(e eventing.Event) (inbox.Change, error) {
	if e.Type != "OrderPlaced" {
		return inbox.Change{}, fmt.Errorf("event_type: %q is unknown", e.Type)
	}
	return inbox.Change{Kind: inbox.Created, Payload: string(e.Payload)}, nil
}

func (billing) Apply(ctx context.Context, tx pgx.Tx, changes []inbox.Change) ([]inbox.Outcome, error) {
	return inbox.Each(ctx, tx, changes, bill)
}

func (billing) Repair(context.Context, eventing.Event) error {
	return eventing.Permanent(errors.New("orders have no gaps"))
}

func (billing) Committed(context.Context, ...consistency.Position) {}

// bill cannot see from a debt that it contains an order already. The inbox lets an
// event through once; after its row has been purged, the source event stops a replay.
// The database reports that by an error. Hence the savepoint: it undoes this order's
// part, and the batch's other orders stay.
func bill(ctx context.Context, tx pgx.Tx, c inbox.Change) (inbox.Outcome, error) {
	debtor := c.Payload.(string)
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		// The times of a debt grow with its versions, like those of eventing.NextTime.
		var version, epoch int64
		var changed time.Time
		err := tx.QueryRow(ctx, `
			INSERT INTO debts (debtor, orders, version, changed_at) VALUES ($1, 1, 1, $2)
			ON CONFLICT (debtor) DO UPDATE SET orders = debts.orders + 1, version = debts.version + 1,
			       changed_at = greatest(excluded.changed_at, debts.changed_at + interval '1 microsecond')
			RETURNING version, changed_at, `+outbox.PresentEpoch, debtor, time.Now()).Scan(&version, &changed, &epoch)
		if err != nil {
			return err
		}
		return outbox.Append(ctx, tx, nil, eventing.Event{
			ID: uuid.Must(uuid.NewV7()), AggregateType: "debt", AggregateID: debtor, Type: "DebtRaised",
			Version: version, SchemaVersion: 1, Epoch: epoch, OccurredAt: changed.UTC(),
			TenantID: c.Event.TenantID, TraceParent: c.Event.TraceParent, SourceEventID: c.Event.ID,
		})
	})
	if errors.Is(err, outbox.ErrSourceAnswered) {
		return inbox.Stale, nil
	}
	return inbox.Applied, err
}

func order(id string) eventing.Event {
	return eventing.Event{
		ID: uuid.New(), AggregateType: "order", AggregateID: id, Type: "OrderPlaced", Payload: []byte("debtor-1"),
		Version: 1, SchemaVersion: 1, Epoch: eventing.FirstEpoch, OccurredAt: time.Now(),
	}
}

// A service consumes events and emits its own, in one transaction. An order that comes again
// after its inbox row was purged raises no debt a second time, and the orders of its batch
// stay.
func Example_consumeAndEmit() {
	ctx := context.Background()
	db := pgtest.NewExample(`CREATE TABLE debts (debtor text PRIMARY KEY, orders int NOT NULL, version bigint NOT NULL, changed_at timestamptz NOT NULL)`)
	defer db.Close()

	first, second := order("order-1"), order("order-2")
	for _, batch := range [][]eventing.Event{{first}, {first, second}} {
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			for _, e := range batch {
				outcome, err := inbox.ApplyOne(ctx, tx, billing{}, e)
				if err != nil {
					return err
				}
				fmt.Println(e.AggregateID, outcome)
			}
			return nil
		})
		if err != nil {
			panic(err)
		}
	}
	var orders, events int
	err := db.QueryRow(ctx, `SELECT orders, (SELECT count(*) FROM outbox) FROM debts WHERE debtor = 'debtor-1'`).Scan(&orders, &events)
	fmt.Println(orders, "orders in the debt,", events, "events in the outbox,", err)
	// Output:
	// order-1 applied
	// order-1 stale
	// order-2 applied
	// 2 orders in the debt, 2 events in the outbox, <nil>
}
