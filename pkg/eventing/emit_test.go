package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/outbox"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// billing is a service that consumes and emits: each OrderPlaced raises its
// customer's debt, and says so in an event of its own, in the transaction that
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

func (billing) Committed(...string) {}

// bill has no way to see from the debt that an order is in it already. The inbox
// lets an event through once; after its row has been purged, the source event
// stops a replay. The database says so by an error, hence the savepoint: what it
// undoes is this order's part, and the batch's other orders stay.
func bill(ctx context.Context, tx pgx.Tx, c inbox.Change) (inbox.Outcome, error) {
	customer := c.Payload.(string)
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		var version int64
		err := tx.QueryRow(ctx, `
			INSERT INTO debts (customer, orders, version) VALUES ($1, 1, 1)
			ON CONFLICT (customer) DO UPDATE SET orders = debts.orders + 1, version = debts.version + 1
			RETURNING version`, customer).Scan(&version)
		if err != nil {
			return err
		}
		return outbox.Append(ctx, tx, nil, eventing.Event{
			ID: uuid.Must(uuid.NewV7()), AggregateType: "debt", AggregateID: customer, Type: "DebtRaised",
			Version: version, SchemaVersion: 1, Epoch: eventing.Epoch, OccurredAt: time.Now().UTC(),
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
		ID: uuid.New(), AggregateType: "order", AggregateID: id, Type: "OrderPlaced", Payload: []byte("customer-1"),
		Version: 1, SchemaVersion: 1, Epoch: eventing.Epoch, OccurredAt: time.Now(),
	}
}

// TestConsumeAndEmit replays an order past an inbox that has forgotten it, in one
// transaction with a new one.
func TestConsumeAndEmit(t *testing.T) {
	pg := pgtest.New(t)
	admin, db := pg.Pool(t, pg.Admin), pg.Pool(t, pg.URL)
	_, err := admin.Exec(t.Context(), `
		CREATE TABLE app.debts (customer text PRIMARY KEY, orders int NOT NULL, version bigint NOT NULL);
		GRANT SELECT, INSERT, UPDATE ON app.debts TO app_service`)
	if err != nil {
		t.Fatal(err)
	}
	first, second := order("order-1"), order("order-2")
	apply := func(orders []eventing.Event, want ...inbox.Outcome) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
			for i, e := range orders {
				if got, err := inbox.ApplyOne(t.Context(), tx, billing{}, e); err != nil || got != want[i] {
					return fmt.Errorf("%s: outcome %v (%w), want %v", e.AggregateID, got, err, want[i])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	apply([]eventing.Event{first}, inbox.Applied)
	apply([]eventing.Event{first, second}, inbox.Stale, inbox.Applied)
	var orders, version, events int
	err = db.QueryRow(t.Context(), `
		SELECT orders, version, (SELECT count(*) FROM outbox WHERE aggregate_id = customer) FROM debts`).
		Scan(&orders, &version, &events)
	if err != nil || orders != 2 || version != 2 || events != 2 {
		t.Errorf("%d orders, version %d, %d events (%v), want two of each", orders, version, events, err)
	}
}
