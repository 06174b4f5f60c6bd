package consistency_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/notify"
)

// orders is a projection that has orders only.
type orders struct{ db *pgxpool.Pool }

func (o orders) Positions(ctx context.Context, _ []consistency.Position) ([]consistency.Position, error) {
	rows, _ := o.db.Query(ctx, `SELECT 'order' AS aggregate_type, id AS aggregate_id, epoch, version FROM orders`)
	return pgx.CollectRows(rows, pgx.RowToStructByName[consistency.Position])
}

// A reader waits for version 2 of an order. Its wait ends when the projection is there; one
// goroutine per process reads the projection for all readers.
func ExampleWaiters_Wait() {
	ctx, stop := context.WithCancel(context.Background())
	db := pgtest.NewExample(`
		CREATE TABLE orders (id text PRIMARY KEY, epoch bigint NOT NULL, version bigint NOT NULL);
		INSERT INTO orders VALUES ('17', 1, 1)`)
	defer db.Close()
	log := slog.New(slog.DiscardHandler)
	waiters := consistency.NewWaiters(1000, orders{db.Pool}, notify.New(db.Pool, "", "orders", log))
	ended := make(chan error)
	go func() { ended <- waiters.Run(ctx, log, func() {}) }()

	wanted := consistency.Position{AggregateType: "order", AggregateID: "17", Epoch: 1, Version: 2}
	reached := make(chan bool)
	go func() {
		yes, err := waiters.Wait(ctx, wanted)
		reached <- yes && err == nil
	}()
	_, err := db.Exec(ctx, `UPDATE orders SET version = 2 WHERE id = '17'`)
	waiters.Notify(ctx, wanted) // a consumer's handler does so in Committed
	fmt.Println("updated:", err)
	fmt.Println("reached:", <-reached)
	stop()
	fmt.Println("ended:", <-ended)
	// Output:
	// updated: <nil>
	// reached: true
	// ended: <nil>
}
