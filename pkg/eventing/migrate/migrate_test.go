package migrate_test

import (
	"embed"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/migrate"
)

// A release of the library brings migrations with lower numbers than those that the
// service has applied: the instances are unready until they are applied, and the older
// binary is ready then, too.
func TestLibraryMigrationsAfterTheServices(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	log := slog.New(slog.DiscardHandler)
	before := orders
	before.Parts = []embed.FS{migrate.Outbox}
	if err := before.Up(t.Context(), db.Admin, log); err != nil {
		t.Fatal(err)
	}
	own := db.Pool(t, db.As(t, orders.Role))
	err := orders.Check(t.Context(), own)
	if !errors.Is(err, migrate.ErrBehind) || !strings.Contains(err.Error(), "[401 402 403]") {
		t.Errorf("before the library's migrations: %v, want 401 to 403 missing", err)
	}
	for range 2 {
		if err := orders.Up(t.Context(), db.Admin, log); err != nil {
			t.Fatal(err)
		}
	}
	for _, binary := range []migrate.Schema{before, orders} {
		if err := binary.Check(t.Context(), own); err != nil {
			t.Error(err)
		}
	}
	var last int64
	if err := own.QueryRow(t.Context(), `SELECT version_id FROM goose_db_version ORDER BY id DESC LIMIT 1`).Scan(&last); err != nil || last != 403 {
		t.Errorf("the last migration was %d (%v), want 403", last, err)
	}
}

// Another process, perhaps of another release, is about to create the schema.
func TestTwoProcessesCreateTheSchema(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	admin := pg.Pool(t, pg.Admin)
	ended := make(chan error, 1)
	err := pgx.BeginFunc(t.Context(), admin, func(other pgx.Tx) error {
		if _, err := other.Exec(t.Context(), `SELECT pg_advisory_xact_lock(hashtext('lockstep create schema')); CREATE SCHEMA orders`); err != nil {
			return err
		}
		go func() { ended <- orders.Up(t.Context(), pg.Admin, slog.New(slog.DiscardHandler)) }()
		for waits := false; !waits; {
			err := admin.QueryRow(t.Context(), `
				SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestARestoredOutboxHasRoomForPlans rewrites the outbox's file, as a restore does, and
// migrates again, as the procedure for a restore says.
func TestARestoredOutboxHasRoomForPlans(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	admin := pg.Pool(t, pg.Admin)
	pages := func() (n int) {
		t.Helper()
		err := admin.QueryRow(t.Context(), `SELECT pg_relation_size('app.outbox') / current_setting('block_size')::int`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	created := pages()
	pgtest.Exec(t, admin, `VACUUM FULL app.outbox`)
	rewritten := pages()
	for range 2 { // the second one has nothing to do
		if err := pgtest.Library.Up(t.Context(), pg.Admin, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	if n := pages(); created < 64 || rewritten >= 64 || n != created {
		t.Errorf("%d pages when it was created, %d after it was rewritten, and %d after it was migrated again", created, rewritten, n)
	}
	var rows int
	if err := admin.QueryRow(t.Context(), `SELECT count(*) FROM app.outbox`).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows, %v", rows, err)
	}
}

//go:embed testdata/misnumbered/*.sql
var misnumbered embed.FS

// A number that the rule does not give to the service is an error, and nothing is
// applied.
func TestMigrationNumbersFollowTheRule(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	older := map[int64]int64{101: 1, 201: 3}
	for name, test := range map[string]struct {
		schema migrate.Schema
		want   string
	}{
		"a service in the library's range": {migrate.Schema{Own: misnumbered}, "00299_of_the_library.sql"},
		"the same part twice":              {migrate.Schema{Parts: []embed.FS{migrate.Inbox, migrate.Inbox}}, "both have the number 301"},
		"a number of the schema's history": {migrate.Schema{Parts: []embed.FS{migrate.Outbox}, Own: history, Earlier: older}, "both have the number 3"},
		"a new schema below the library":   {migrate.Schema{Own: history}, "begin at 1000"},
	} {
		test.schema.Name, test.schema.Role = "refused", "refused_service"
		if err := test.schema.Up(t.Context(), db.Admin, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	var there bool
	err := db.Pool(t, db.Admin).QueryRow(t.Context(), `SELECT to_regnamespace('refused') IS NOT NULL`).Scan(&there)
	if err != nil || there {
		t.Errorf("the schema is there: %v (%v)", there, err)
	}
}

//go:embed testdata/history/*.sql
var history embed.FS

// While there is a rebuild, no migration changes the tables that it copies. A release without
// migrations is not held up.
func TestNoMigrationDuringARebuild(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	log := slog.New(slog.DiscardHandler)
	before := orders
	before.Parts = []embed.FS{migrate.Outbox}
	if err := before.Up(t.Context(), db.Admin, log); err != nil {
		t.Fatal(err)
	}
	admin := db.Pool(t, db.Admin)
	pgtest.Exec(t, admin, `CREATE TABLE orders.rebuild_state ()`)
	if err := before.Up(t.Context(), db.Admin, log); err != nil {
		t.Errorf("without migrations: %v", err)
	}
	err := orders.Up(t.Context(), db.Admin, log)
	if !errors.Is(err, migrate.ErrRebuild) || !strings.Contains(err.Error(), "orders rebuild finish") {
		t.Errorf("with a migration: %v", err)
	}
	if err := orders.Check(t.Context(), db.Pool(t, db.As(t, orders.Role))); !errors.Is(err, migrate.ErrBehind) {
		t.Errorf("the migration was applied: %v", err)
	}
	pgtest.Exec(t, admin, `DROP TABLE orders.rebuild_state`)
	if err := orders.Up(t.Context(), db.Admin, log); err != nil {
		t.Error(err)
	}
}

// A rebuild that is about to begin has tables that no other session sees yet. A migration waits for
// them, and is then refused.
func TestNoMigrationWhileARebuildBegins(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	log := slog.New(slog.DiscardHandler)
	before := orders
	before.Parts = []embed.FS{migrate.Outbox}
	if err := before.Up(t.Context(), db.Admin, log); err != nil {
		t.Fatal(err)
	}
	admin := db.Pool(t, db.Admin)
	ended := make(chan error, 1)
	err := pgx.BeginFunc(t.Context(), admin, func(rebuild pgx.Tx) error {
		if _, err := rebuild.Exec(t.Context(), `SELECT pg_advisory_xact_lock(hashtext('lockstep migrate orders')); CREATE TABLE orders.rebuild_state ()`); err != nil {
			return err
		}
		go func() { ended <- orders.Up(t.Context(), db.Admin, log) }()
		for waits := false; !waits && len(ended) == 0; {
			err := admin.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%pg_try_advisory_lock%lockstep migrate%')`).Scan(&waits)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, migrate.ErrRebuild) {
		t.Errorf("a migration while a rebuild begins: %v", err)
	}
	if err := orders.Check(t.Context(), db.Pool(t, db.As(t, orders.Role))); !errors.Is(err, migrate.ErrBehind) {
		t.Errorf("the migration was applied: %v", err)
	}
}
