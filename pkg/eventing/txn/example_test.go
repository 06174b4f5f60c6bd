package txn_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/tenant"
	"example.com/lockstep/pkg/eventing/txn"
)

// A client that has lost the answer sends its request again, with the same key. The key and
// the order commit together, so that the second request writes nothing.
func ExampleWriter_Write() {
	ctx := context.Background()
	db := pgtest.NewExample(`
		CREATE TABLE requests (key text PRIMARY KEY);
		CREATE TABLE orders (id text PRIMARY KEY, request text NOT NULL)`)
	defer db.Close()
	writer := txn.NewWriter(db.Pool)

	place := func(key, id string) (order string, err error) {
		err = writer.Write(ctx, tenant.All(), key, func(tx *txn.Tx) error {
			b := &pgx.Batch{}
			b.Queue(`
				WITH first AS (INSERT INTO requests (key) VALUES ($1) ON CONFLICT DO NOTHING RETURNING key)
				INSERT INTO orders (id, request) SELECT $2, key FROM first`, key, id)
			b.Queue(`SELECT id FROM orders WHERE request = $1`, key).QueryRow(func(row pgx.Row) error { return row.Scan(&order) })
			return tx.WithCommit().SendBatch(ctx, b).Close() // with BEGIN and COMMIT in one round trip
		})
		return order, err
	}
	fmt.Println(place("request-a", "order-1"))
	fmt.Println(place("request-a", "order-2")) // the same request
	fmt.Println(place("request-b", "order-3"))
	// Output:
	// order-1 <nil>
	// order-1 <nil>
	// order-3 <nil>
}
