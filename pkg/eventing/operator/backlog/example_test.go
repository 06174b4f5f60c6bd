package backlog_test

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/operator/backlog"
	"example.com/lockstep/pkg/eventing/outbox"
)

// The broker has refused an event five times: it is parked, and the event behind it waits.
// An operator fixes the cause, and lets the relay try again.
func ExampleBacklog_Retry() {
	ctx := context.Background()
	db := pgtest.NewExample("")
	defer db.Close()
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return outbox.Append(ctx, tx, nil, order(1), order(2)) })
	if err != nil {
		panic(err)
	}
	// The relay would write this after its fifth attempt.
	_, err = db.Exec(ctx, `UPDATE outbox SET parked_at = now(), publish_attempts = 5, last_error = 'schema not found' WHERE version = 1`)
	if err != nil {
		panic(err)
	}

	events := backlog.New(db.Pool)
	before, err := events.Status(ctx)
	fmt.Println(before.Pending, "pending,", before.Parked, "parked,", before.Blocked, "blocked", err)
	fmt.Println(before.ByReason)

	retried, err := events.Retry(ctx, audit.Actor{By: "ada", Why: "the schema is there"}, backlog.Filter{Reason: "schema"})
	fmt.Println(retried.Freed, "freed,", retried.Locked, "locked", err)

	after, err := events.Status(ctx)
	fmt.Println(after.Pending, "pending,", after.Parked, "parked,", after.Blocked, "blocked", err)
	// Output:
	// 2 pending, 1 parked, 1 blocked <nil>
	// [{schema not found 1}]
	// 1 freed, 0 locked <nil>
	// 2 pending, 0 parked, 0 blocked <nil>
}

func order(version int64) eventing.Event {
	return eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "order", AggregateID: "17", Type: "OrderChanged",
		Version: version, SchemaVersion: 1, Epoch: eventing.FirstEpoch, OccurredAt: time.Now().UTC(),
	}
}
