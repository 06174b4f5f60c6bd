package migrate_test

import (
	"context"
	"embed"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/migrate"
)

// replaced has the number of own, with another file.
//
//go:embed testdata/replaced/*.sql
var replaced embed.FS

// slow has a migration that takes minutes behind another one.
//
//go:embed testdata/slow/*.sql
var slow embed.FS

// A fork and its origin have given one number to two files. The release with the second file is refused, and applies
// nothing, until the first file was taken back.
func TestANumberHasOneFile(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	admin, log := pg.Pool(t, pg.Admin), slog.New(slog.DiscardHandler)
	later := orders
	later.Own = replaced
	older := orders
	older.Parts = []embed.FS{migrate.Outbox}
	if err := older.Up(t.Context(), pg.Admin, log); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := later.Up(t.Context(), pg.Admin, log)
		if !errors.Is(err, migrate.ErrReplaced) || !strings.Contains(err.Error(), "orders.1000 is 01000_orders.sql, and this release has 01000_other_orders.sql: ") {
			t.Errorf("with another file: %v, want the names of both", err)
		}
	}
	var table, operator bool
	err := admin.QueryRow(t.Context(), `SELECT to_regclass('orders.other_orders') IS NOT NULL, to_regclass('orders.operator_actions') IS NOT NULL`).
		Scan(&table, &operator)
	if err != nil || table || operator {
		t.Errorf("the refused release has made its table (%t) or a table of the library (%t), %v", table, operator, err)
	}

	_, err = admin.Exec(t.Context(), `DROP TABLE orders.orders; DELETE FROM orders.goose_db_version WHERE version_id = 1000`)
	if err != nil {
		t.Fatal(err)
	}
	if err := later.Up(t.Context(), pg.Admin, log); err != nil {
		t.Errorf("after the first file was taken back: %v", err)
	}
	if err := orders.Up(t.Context(), pg.Admin, log); !errors.Is(err, migrate.ErrReplaced) {
		t.Errorf("the first file, when the number has the second one: %v", err)
	}
}

// A database from before the names takes those of its next release.
func TestNumbersWithoutNames(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	admin, log := pg.Pool(t, pg.Admin), slog.New(slog.DiscardHandler)
	if err := orders.Up(t.Context(), pg.Admin, log); err != nil {
		t.Fatal(err)
	}
	_, err := admin.Exec(t.Context(), `DROP TABLE orders.migration_files; DELETE FROM orders.goose_db_version WHERE version_id = 108`)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := orders.Up(t.Context(), pg.Admin, log); err != nil {
			t.Fatal(err)
		}
		var applied, named int
		var file string
		err := admin.QueryRow(t.Context(), `
			SELECT count(*), count(m.file), max(m.file) FILTER (WHERE m.number = 1000)
			  FROM orders.goose_db_version AS v LEFT JOIN orders.migration_files AS m ON m.number = v.version_id
			 WHERE v.version_id > 0`).Scan(&applied, &named, &file)
		if err != nil || applied == 0 || named != applied || file != "01000_orders.sql" {
			t.Errorf("%d of %d migrations have a name, that of 1000 is %q, %v", named, applied, file, err)
		}
	}
}

// Up is told to end during a long migration, as `migrate` is after its 15 minutes. The migrations before it are applied, and
// have their names.
func TestAnUpThatIsEndedRecordsNames(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	admin := pg.Pool(t, pg.Admin)
	ctx, end := context.WithCancel(t.Context())
	ended, long := make(chan error, 1), orders
	long.Own = slow
	go func() { ended <- long.Up(ctx, pg.Admin, slog.New(slog.DiscardHandler)) }()
	for sleeps := false; !sleeps; {
		err := admin.QueryRow(t.Context(), `
			SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep')`).Scan(&sleeps)
		if err != nil {
			t.Fatal(err)
		}
	}
	end()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Up: %v", err)
	}
	var file string
	var nameless int
	err := admin.QueryRow(t.Context(), `
		SELECT coalesce(max(m.file) FILTER (WHERE v.version_id = 1000), 'no name'), count(*) FILTER (WHERE m.file IS NULL)
		  FROM orders.goose_db_version AS v LEFT JOIN orders.migration_files AS m ON m.number = v.version_id
		 WHERE v.version_id > 0`).Scan(&file, &nameless)
	if err != nil || file != "01000_first.sql" || nameless > 0 {
		t.Errorf("migration 1000 has %s, and %d have no name (%v)", file, nameless, err)
	}
}
