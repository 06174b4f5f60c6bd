package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pubsubtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
)

const (
	topic        = "projects/demo/topics/order.events"
	subscription = "projects/demo/subscriptions/order.events.billing"
)

// A relay publishes committed events until its context ends. The owner runs it next to its
// API. A transaction hands its event over to the relay, and wakes the relay if the relay cannot take
// the event.
func ExampleRelay() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	db := pgtest.NewExample("")
	defer db.Close()
	broker := pubsubtest.NewExample(ctx, &pubsubpb.Subscription{
		Name: subscription, Topic: topic, EnableMessageOrdering: true,
	})
	defer broker.Close()

	relay := outbox.NewRelay(db.Pool, broker.Client, map[string]string{"order": topic},
		slog.New(slog.DiscardHandler), func() {}, outbox.Options{Retention: 24 * time.Hour})
	ended := make(chan error)
	go func() { ended <- relay.Run(ctx) }()

	handover := relay.Handover()
	epoch, err := outbox.NewEpoch(db.Pool).Present(ctx) // see the example of Epoch
	if err != nil {
		panic(err)
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		return handover.Append(ctx, tx, nil, eventing.Event{
			ID: uuid.Must(uuid.NewV7()), AggregateType: "order", AggregateID: "17", Type: "OrderPlaced",
			Version: 1, SchemaVersion: 1, Epoch: epoch, OccurredAt: time.Now().UTC(), Payload: []byte("two chairs"),
		})
	})
	if err != nil {
		handover.Failed() // the transaction may have committed nevertheless
		panic(err)
	}
	if !handover.Committed() {
		relay.Wake()
	}

	err = broker.Subscriber(subscription).Receive(ctx, func(_ context.Context, m *pubsub.Message) {
		fmt.Printf("%s of order %s: %s\n", m.Attributes[eventing.AttrEventType], m.OrderingKey, m.Data)
		m.Ack()
		stop()
	})
	fmt.Println(err, <-ended)
	// Output:
	// OrderPlaced of order 17: two chairs
	// <nil> <nil>
}
