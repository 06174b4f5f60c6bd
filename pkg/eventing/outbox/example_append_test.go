package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
)

// The order and its event commit together, and cost one round trip together.
func ExampleAppend() {
	ctx := context.Background()
	db := pgtest.NewExample(`CREATE TABLE orders (id text PRIMARY KEY, version bigint NOT NULL)`)
	defer db.Close()

	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		order := &pgx.Batch{}
		order.Queue(`INSERT INTO orders (id, version) VALUES ('17', 1)`)
		return outbox.Append(ctx, tx, order, eventing.Event{
			ID: uuid.Must(uuid.NewV7()), AggregateType: "order", AggregateID: "17", Type: "OrderPlaced",
			Version: 1, SchemaVersion: 1, Epoch: eventing.FirstEpoch, OccurredAt: time.Now().UTC(), Payload: []byte("two chairs"),
		})
	})
	fmt.Println("committed:", err)

	var orders, events int
	err = db.QueryRow(ctx, `SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM outbox)`).Scan(&orders, &events)
	fmt.Println(orders, "order,", events, "event,", err)
	// Output:
	// committed: <nil>
	// 1 order, 1 event, <nil>
}

// Two transactions that decided on the same state give two events the same version. The
// outbox refuses the second one, and its transaction rolls back.
func ExampleAppend_versionTaken() {
	ctx := context.Background()
	db := pgtest.NewExample("")
	defer db.Close()

	write := func(version int64) error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			return outbox.Append(ctx, tx, nil, eventing.Event{
				ID: uuid.Must(uuid.NewV7()), AggregateType: "order", AggregateID: "17", Type: "OrderChanged",
				Version: version, SchemaVersion: 1, Epoch: eventing.FirstEpoch, OccurredAt: time.Now().UTC(),
			})
		})
	}
	fmt.Println("version 1:", write(1))
	fmt.Println("version 1 is taken:", errors.Is(write(1), outbox.ErrVersionTaken))
	fmt.Println("version 3 skips one:", errors.Is(write(3), outbox.ErrVersionSkipped))
	fmt.Println("version 2:", write(2))
	// Output:
	// version 1: <nil>
	// version 1 is taken: true
	// version 3 skips one: true
	// version 2: <nil>
}
