package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pubsubtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
)

// shipments is a read model that counts the changes of each order.
type shipments struct{ moved chan string }

func (shipments) Decode(e eventing.Event) (inbox.Change, error) {
	switch e.Type {
	case "OrderPlaced":
		return inbox.Change{Kind: inbox.Created}, nil
	case "OrderChanged":
		return inbox.Change{Kind: inbox.Updated}, nil
	}
	return inbox.Change{}, inbox.ErrUnknown // a newer build may know it
}

func (s shipments) Apply(ctx context.Context, tx pgx.Tx, changes []inbox.Change) ([]inbox.Outcome, error) {
	return inbox.Each(ctx, tx, changes, s.apply)
}

// apply locks the row, decides, and writes.
func (shipments) apply(ctx context.Context, tx pgx.Tx, c inbox.Change) (inbox.Outcome, error) {
	var at inbox.Position
	err := tx.QueryRow(ctx, `SELECT epoch, version FROM shipments WHERE id = $1 FOR UPDATE`, c.Event.AggregateID).
		Scan(&at.Epoch, &at.Version)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, err
	}
	outcome := inbox.Decide(at, c)
	if outcome != inbox.Applied {
		return outcome, nil
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO shipments (id, epoch, version, changes) VALUES ($1, $2, $3, 1)
		ON CONFLICT (id) DO UPDATE
		   SET epoch = excluded.epoch, version = excluded.version, changes = shipments.changes + 1`,
		c.Event.AggregateID, c.Event.Epoch, c.Event.Version)
	return outcome, err
}

func (shipments) Repair(context.Context, eventing.Event) error {
	return eventing.Permanent(errors.New("this example has no owner that could be asked"))
}

func (s shipments) Committed(_ context.Context, moved ...consistency.Position) {
	for _, at := range moved {
		s.moved <- at.Key()
	}
}

// A consumer applies each event once, in the transaction that writes its inbox row. Here
// the first event arrives twice.
func ExampleConsumer() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	db := pgtest.NewExample(`
		CREATE TABLE shipments (id text PRIMARY KEY, epoch bigint NOT NULL, version bigint NOT NULL, changes int NOT NULL)`)
	defer db.Close()
	broker := pubsubtest.NewExample(ctx, &pubsubpb.Subscription{
		Name: "projects/demo/subscriptions/order.events.shipping", Topic: topic, EnableMessageOrdering: true,
	})
	defer broker.Close()

	model := shipments{moved: make(chan string, 10)}
	consumer := inbox.NewConsumer(db.Pool, broker.Client, "order.events.shipping", model, slog.New(slog.DiscardHandler), func() {}, inbox.Options{})
	ended := make(chan error)
	go func() { ended <- consumer.Run(ctx) }()

	placed, changed := order("OrderPlaced", 1), order("OrderChanged", 2)
	_, err := broker.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{
		Topic: topic, Messages: []*pubsubpb.PubsubMessage{placed.Message(), placed.Message(), changed.Message()},
	})
	if err != nil {
		panic(err)
	}
	var version, changes int
	for version < 2 {
		<-model.moved
		if err := db.QueryRow(ctx, `SELECT version, changes FROM shipments`).Scan(&version, &changes); err != nil {
			panic(err)
		}
	}
	stop()
	fmt.Println("version", version, "after", changes, "changes,", <-ended)
	// Output: version 2 after 2 changes, <nil>
}

func order(change string, version int64) eventing.Event {
	return eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "order", AggregateID: "17", Type: change,
		Version: version, SchemaVersion: 1, Epoch: eventing.FirstEpoch, OccurredAt: time.Now().UTC(),
	}
}

const topic = "projects/demo/topics/order.events"
