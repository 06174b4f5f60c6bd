package inbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pubsubtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/inbox"
)

// A service pages somebody when an event becomes a dead letter: here one that the read
// model's own table refuses.
func ExampleOptions() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	db := pgtest.NewExample(`CREATE TABLE shipments (
		id text PRIMARY KEY, epoch bigint NOT NULL, version bigint NOT NULL, changes int NOT NULL CHECK (changes < 2))`)
	defer db.Close()
	broker := pubsubtest.NewExample(ctx, &pubsubpb.Subscription{
		Name: "projects/demo/subscriptions/order.events.shipping", Topic: topic, EnableMessageOrdering: true,
	})
	defer broker.Close()
	_, err := broker.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: "projects/demo/topics/order.events.shipping.dlq"})
	if err != nil {
		panic(err)
	}

	model := shipments{moved: make(chan string, 10)}
	consumer := inbox.NewConsumer(db.Pool, broker.Client, "order.events.shipping", model, slog.New(slog.DiscardHandler), func() {},
		inbox.Options{
			MaxAttempts:   2,
			RetryBackoff:  backoff.Policy{Base: time.Millisecond, Cap: time.Second},
			RepairBackoff: backoff.Policy{Base: time.Second, Cap: time.Minute},
			OutageBackoff: backoff.Policy{Cap: 10 * time.Second},
			OnDeadLetter: func(_ context.Context, d inbox.DeadLetter) {
				fmt.Printf("%s of %s is dead after %d attempts\n", d.Event.Type, d.Event.Key(), d.Attempts)
				stop()
			},
			OnDiverged: func(_ context.Context, e eventing.Event) { fmt.Println("the owner has lost commits:", e.Key()) },
		})
	placed, changed := order("OrderPlaced", 1), order("OrderChanged", 2)
	_, err = broker.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{
		Topic: topic, Messages: []*pubsubpb.PubsubMessage{placed.Message(), changed.Message()},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(consumer.Run(ctx))
	// Output:
	// OrderChanged of order/17 is dead after 2 attempts
	// <nil>
}
