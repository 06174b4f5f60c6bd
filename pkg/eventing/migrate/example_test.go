package migrate_test

import (
	"context"
	"embed"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/migrate"
)

// own has the table orders, with the number 1000.
//
//go:embed testdata/orders/*.sql
var own embed.FS

// orders is the schema of a service that owns events and has operator commands.
var orders = migrate.Schema{
	Name: "orders", Role: "orders_service",
	Parts: []embed.FS{migrate.Outbox, migrate.Operator}, Own: own,
}

// A service includes the library's tables in its own migrations. Up runs as an
// administrator before a release, Check in the service.
func ExampleSchema() {
	ctx := context.Background()
	db := pgtest.NewExample("")
	defer db.Close()
	log := slog.New(slog.DiscardHandler)
	for range 2 { // the second time it has nothing to do
		if err := orders.Up(ctx, db.Admin, log); err != nil {
			panic(err)
		}
	}
	config, err := pgxpool.ParseConfig(db.Admin)
	if err != nil {
		panic(err)
	}
	config.ConnConfig.RuntimeParams["search_path"] = "orders" // the role of the service has this setting
	admin, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		panic(err)
	}
	defer admin.Close()
	fmt.Println("behind:", orders.Check(ctx, admin))

	for _, table := range []string{"orders.orders", "orders.outbox", "orders.inbox"} {
		var there, writable bool
		err := admin.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL, coalesce(has_table_privilege($2, to_regclass($1), 'INSERT'), false)`,
			table, orders.Role).Scan(&there, &writable)
		fmt.Println(table, "there:", there, "the service writes it:", writable, err)
	}
	// Output:
	// behind: <nil>
	// orders.orders there: true the service writes it: true <nil>
	// orders.outbox there: true the service writes it: true <nil>
	// orders.inbox there: false the service writes it: false <nil>
}
