package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/localpubsub"
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
	broker, client := startBroker(ctx)
	defer broker.Close()
	defer client.Close()

	relay := outbox.NewRelay(db.Pool, client, map[string]string{"order": topic},
		slog.New(slog.DiscardHandler), func() {}, outbox.Options{Retention: 24 * time.Hour})
	ended := make(chan error)
	go func() { ended <- relay.Run(ctx) }()

	handover := relay.Handover()
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		return handover.Append(ctx, tx, nil, eventing.Event{
			ID: uuid.Must(uuid.NewV7()), AggregateType: "order", AggregateID: "17", Type: "OrderPlaced",
			Version: 1, SchemaVersion: 1, Epoch: eventing.FirstEpoch, OccurredAt: time.Now().UTC(), Payload: []byte("two chairs"),
		})
	})
	if err != nil {
		handover.Failed() // the transaction may have committed nevertheless
		panic(err)
	}
	if !handover.Committed() {
		relay.Wake()
	}

	err = client.Subscriber(subscription).Receive(ctx, func(_ context.Context, m *pubsub.Message) {
		fmt.Printf("%s of order %s: %s\n", m.Attributes[eventing.AttrEventType], m.OrderingKey, m.Data)
		m.Ack()
		stop()
	})
	fmt.Println(err, <-ended)
	// Output:
	// OrderPlaced of order 17: two chairs
	// <nil> <nil>
}

// startBroker starts a local Pub/Sub with a topic and an ordered subscription.
func startBroker(ctx context.Context) (*localpubsub.Server, *pubsub.Client) {
	broker, err := localpubsub.Start(localpubsub.Options{})
	if err != nil {
		panic(err)
	}
	os.Setenv("PUBSUB_EMULATOR_HOST", broker.Addr())
	client, err := pubsub.NewClient(ctx, "demo")
	if err != nil {
		panic(err)
	}
	if _, err = client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: topic}); err != nil {
		panic(err)
	}
	_, err = client.SubscriptionAdminClient.CreateSubscription(ctx, &pubsubpb.Subscription{
		Name: subscription, Topic: topic, EnableMessageOrdering: true,
	})
	if err != nil {
		panic(err)
	}
	return broker, client
}
