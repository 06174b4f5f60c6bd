package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pubsubtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/operator/deadletter"
)

// shipping is the handler of the service, in the version that has the repair.
type shipping struct{}

func (shipping) Decode(e eventing.Event) (inbox.Change, error) {
	return inbox.Change{Kind: inbox.Created, Payload: string(e.Payload)}, nil
}

func (shipping) Apply(ctx context.Context, tx pgx.Tx, changes []inbox.Change) ([]inbox.Outcome, error) {
	return inbox.Each(ctx, tx, changes, func(ctx context.Context, tx pgx.Tx, c inbox.Change) (inbox.Outcome, error) {
		_, err := tx.Exec(ctx, `INSERT INTO parcels (order_id, content) VALUES ($1, $2)`, c.Event.AggregateID, c.Payload)
		return inbox.Applied, err
	})
}

func (shipping) Repair(context.Context, eventing.Event) error {
	return eventing.Permanent(errors.New("this example has no owner that could be asked"))
}

func (shipping) Committed(context.Context, ...consistency.Position) {}

// An operator looks at the dead letters, and applies them after the service has been
// repaired. The message is acknowledged once its effect and the audit entry are committed.
func ExampleBatch_Redrive() {
	ctx := context.Background()
	db := pgtest.NewExample(`CREATE TABLE parcels (order_id text PRIMARY KEY, content text NOT NULL)`)
	defer db.Close()
	broker := pubsubtest.NewExample(ctx, &pubsubpb.Subscription{
		Name: "projects/demo/subscriptions/order.events.shipping.dlq", Topic: topic,
	})
	defer broker.Close()
	publishDead(ctx, broker)

	batch, err := deadletter.New(db.Pool, broker.Client, shipping{}, "order.events.shipping").Collect(ctx)
	if err != nil {
		panic(err)
	}
	defer func() { _ = batch.Release(ctx) }() // of those that are not settled
	for _, letter := range batch.Letters {
		fmt.Printf("%s of order %s: %s\n", letter.Type, letter.AggregateID, letter.Reason)
		result, err := batch.Redrive(ctx, audit.Actor{By: "ada", Why: "repaired in 1.2"}, letter)
		fmt.Println(result, err)
	}
	var content string
	err = db.QueryRow(ctx, `SELECT content FROM parcels WHERE order_id = '17'`).Scan(&content)
	fmt.Println("parcel of", content, err)
	// Output:
	// OrderPlaced of order 17: content is too heavy
	// applied <nil>
	// parcel of two chairs <nil>
}

const topic = "projects/demo/topics/order.events.shipping.dlq"

// publishDead publishes a dead letter, as a consumer does.
func publishDead(ctx context.Context, broker *pubsubtest.Broker) {
	dead := eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "order", AggregateID: "17", Type: "OrderPlaced", Payload: []byte("two chairs"),
		Version: 1, SchemaVersion: 1, Epoch: eventing.FirstEpoch, OccurredAt: time.Now().UTC(),
	}.Message()
	dead.Attributes[inbox.AttrDeadLetterReason] = "content is too heavy"
	_, err := broker.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{
		Topic: topic, Messages: []*pubsubpb.PubsubMessage{dead},
	})
	if err != nil {
		panic(err)
	}
}
