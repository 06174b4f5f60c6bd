package eventing_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pubsubtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/outbox"
)

// shipping copies orders. It has a row for each.
type shipping struct{ arrived chan string }

func (shipping) Decode(e eventing.Event) (inbox.Change, error) {
	return inbox.Change{Kind: inbox.Created, Payload: string(e.Payload)}, nil
}

func (s shipping) Apply(ctx context.Context, tx pgx.Tx, changes []inbox.Change) ([]inbox.Outcome, error) {
	return inbox.Each(ctx, tx, changes, func(ctx context.Context, tx pgx.Tx, c inbox.Change) (inbox.Outcome, error) {
		_, err := tx.Exec(ctx, `INSERT INTO parcels (order_id, content) VALUES ($1, $2)`, c.Event.AggregateID, c.Payload)
		return inbox.Applied, err
	})
}

func (shipping) Repair(context.Context, eventing.Event) error { return nil } // Apply meets no gap
func (s shipping) Committed(_ context.Context, moved ...consistency.Position) {
	s.arrived <- moved[0].Key()
}

// The whole way: an owner commits an order with its event, its relay publishes the event,
// and the consumer of another service applies it. Here both services use one database.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	db := pgtest.NewExample(`
		CREATE TABLE orders  (id text PRIMARY KEY, version bigint NOT NULL);
		CREATE TABLE parcels (order_id text PRIMARY KEY, content text NOT NULL)`)
	defer db.Close()
	broker := pubsubtest.NewExample(ctx, &pubsubpb.Subscription{
		Name: "projects/demo/subscriptions/order.events.shipping", Topic: topic, EnableMessageOrdering: true,
	})
	defer broker.Close()

	log, model := slog.New(slog.DiscardHandler), shipping{arrived: make(chan string, 1)}
	relay := outbox.NewRelay(db.Pool, broker.Client, map[string]string{"order": topic}, log, func() {}, outbox.Options{})
	consumer := inbox.NewConsumer(db.Pool, broker.Client, "order.events.shipping", model, log, func() {}, inbox.Options{})
	var running errgroup.Group
	running.Go(func() error { return relay.Run(ctx) })
	running.Go(func() error { return consumer.Run(ctx) })

	epoch, err := outbox.NewEpoch(db.Pool).Present(ctx) // see the example of outbox.Epoch
	if err != nil {
		panic(err)
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		row := &pgx.Batch{}
		row.Queue(`INSERT INTO orders (id, version) VALUES ('17', 1)`)
		return outbox.Append(ctx, tx, row, eventing.Event{
			ID: uuid.Must(uuid.NewV7()), AggregateType: "order", AggregateID: "17", Type: "OrderPlaced",
			Version: 1, SchemaVersion: 1, Epoch: epoch, OccurredAt: time.Now().UTC(), Payload: []byte("two chairs"),
		})
	})
	relay.Wake()
	fmt.Println("committed:", err)
	fmt.Println("arrived:", <-model.arrived)

	var content string
	err = db.QueryRow(ctx, `SELECT content FROM parcels WHERE order_id = '17'`).Scan(&content)
	fmt.Println("parcel of", content, err)
	stop()
	fmt.Println("ended:", running.Wait())
	// Output:
	// committed: <nil>
	// arrived: order/17
	// parcel of two chairs <nil>
	// ended: <nil>
}

const topic = "projects/demo/topics/order.events"
