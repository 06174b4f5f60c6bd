package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pubsubtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox"
)

// A service pages somebody when an event is parked: here one of a type that no topic takes.
func ExampleOptions() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	db := pgtest.NewExample("")
	defer db.Close()
	broker := pubsubtest.NewExample(ctx, &pubsubpb.Subscription{
		Name: subscription, Topic: topic, EnableMessageOrdering: true,
	})
	defer broker.Close()
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		return outbox.Append(ctx, tx, nil, eventing.Event{
			ID: uuid.Must(uuid.NewV7()), AggregateType: "memo", AggregateID: "17", Type: "MemoSent",
			Version: 1, SchemaVersion: 1, Epoch: eventing.FirstEpoch, OccurredAt: time.Now().UTC(),
		})
	})
	if err != nil {
		panic(err)
	}

	relay := outbox.NewRelay(db.Pool, broker.Client, map[string]string{"order": topic}, slog.New(slog.DiscardHandler), func() {},
		outbox.Options{
			MaxAttempts:    2,
			RefusalBackoff: backoff.Policy{Base: time.Millisecond, Cap: time.Second},
			OutageBackoff:  backoff.Policy{Cap: 10 * time.Second},
			OnRefused: func(_ context.Context, r outbox.Refusal) {
				fmt.Printf("attempt %d of %s: %v, parked: %v\n", r.Attempt, r.Event.Key(), r.Err, r.Parked)
				if r.Parked {
					stop()
				}
			},
			OnPaused: func(_ context.Context, p outbox.Pause) { fmt.Println(p.Topic, "is out:", p.Err) },
		})
	fmt.Println(relay.Run(ctx))
	// Output:
	// attempt 1 of memo/17: no topic for aggregate type "memo", parked: false
	// attempt 2 of memo/17: no topic for aggregate type "memo", parked: true
	// <nil>
}
