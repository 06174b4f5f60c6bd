package dbpool_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/dbpool"
)

// A service parses its URL, configures the pool, and passes it to the parts of the library.
func ExampleConfigure() {
	ctx := context.Background()
	db := pgtest.NewExample("")
	defer db.Close()
	cfg, err := pgxpool.ParseConfig(db.Config().ConnString())
	if err != nil {
		fmt.Println(err)
		return
	}
	dbpool.Configure(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()

	var at time.Time
	err = pool.QueryRow(ctx, `SELECT '2026-03-04 05:06:07+03'::timestamptz`).Scan(&at)
	fmt.Println(at, err)

	conn, err := pool.Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Release()
	_, err = conn.Exec(ctx, `BEGIN READ ONLY; CREATE TABLE refused ()`) // as on a standby
	fmt.Println(err)
	fmt.Println("closed:", conn.Conn().IsClosed())
	// Output:
	// 2026-03-04 02:06:07 +0000 UTC <nil>
	// ERROR: cannot execute CREATE TABLE in a read-only transaction (SQLSTATE 25006)
	// closed: true
}
