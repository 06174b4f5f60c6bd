package migrate_test

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/migrate"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/operator/backlog"
	"example.com/lockstep/pkg/eventing/outbox"
)

// existing is a database with a role, a table and a history of migrations in public.
type existing struct {
	*pgtest.Database

	schema migrate.Schema
	app    string // the role of the service
}

func newExisting(t *testing.T) existing {
	t.Helper()
	pg := pgtest.NewDatabase(t)
	suffix := uuid.NewString()[:8]
	e := existing{pg, migrate.Schema{Name: "events", Role: "events_" + suffix, Parts: []embed.FS{migrate.Outbox, migrate.Inbox, migrate.Operator}}, "app_" + suffix}
	admin := pg.Pool(t, pg.Admin)
	do := func(sql string, names ...any) {
		pgtest.Exec(t, admin, fmt.Sprintf(sql, names...))
	}
	do(`CREATE ROLE %s LOGIN`, e.app)
	do(`ALTER ROLE %s SET statement_timeout = '7s'`, e.app)
	do(`CREATE TABLE public.goose_db_version (id int); CREATE TABLE public.orders (id int); GRANT INSERT ON public.orders TO %s`, e.app)
	if err := e.schema.Up(t.Context(), pg.Admin, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	do(`GRANT %s TO %s`, e.schema.Role, e.app)
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), pg.Admin)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		for _, role := range []string{e.app, e.schema.Role} {
			if _, err := conn.Exec(context.Background(), fmt.Sprintf(`DROP OWNED BY %[1]s; DROP ROLE %[1]s`, role)); err != nil {
				t.Error(err)
			}
		}
	})
	return e
}

// pool returns a pool of the service's role, changed by configure.
func (e existing) pool(t *testing.T, configure func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config := pgtest.Settings(t, e.As(t, e.app))
	configure(config)
	pool := pgtest.Open(t, config)
	return pool
}

// The role of a service that has tables already keeps its settings, and writes events in its own transactions.
func TestAServiceThatHasTablesAlready(t *testing.T) {
	t.Parallel()
	e := newExisting(t)
	own := e.pool(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = "public, events" })
	var settings []string
	err := own.QueryRow(t.Context(), `SELECT array(SELECT unnest(setconfig) FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole
		WHERE r.rolname = current_user)`).Scan(&settings)
	if diff := cmp.Diff([]string{"statement_timeout=7s"}, settings); diff != "" || err != nil {
		t.Errorf("the settings of its role (-want +got):\n%s%v", diff, err)
	}
	err = pgx.BeginFunc(t.Context(), own, func(tx pgx.Tx) error {
		row := &pgx.Batch{}
		row.Queue(`INSERT INTO orders (id) VALUES (17)`)
		return outbox.Append(t.Context(), tx, row, eventing.Event{
			ID: uuid.Must(uuid.NewV7()), AggregateType: "order", AggregateID: "17", Type: "OrderPlaced",
			Version: 1, SchemaVersion: 1, Epoch: eventing.FirstEpoch, OccurredAt: time.Now().UTC(),
		})
	})
	if err != nil {
		t.Error(err)
	}
	if err := e.schema.Check(t.Context(), own); !errors.Is(err, migrate.ErrRole) {
		t.Errorf("its own pool: %v, want ErrRole", err)
	}
	events := e.pool(t, func(c *pgxpool.Config) { e.schema.Configure(c, "public") })
	if err := e.schema.Check(t.Context(), events); err != nil {
		t.Errorf("the pool of the library: %v", err)
	}
	var rows int
	if err := events.QueryRow(t.Context(), `SELECT count(*) FROM outbox`).Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d events, %v", rows, err)
	}
	if _, err := backlog.New(events).BeginEpoch(t.Context(), audit.Actor{By: "ada", Why: "a restore"}); err != nil {
		t.Errorf("an operator's action on that pool: %v", err)
	}
}

// A pool of another role has each setting that the migrations have given to the library's role.
func TestConfigureHasTheSettingsOfTheRole(t *testing.T) {
	t.Parallel()
	e := newExisting(t)
	rows, _ := e.Pool(t, e.Admin).Query(t.Context(), `
		SELECT split_part(c, '=', 1), split_part(c, '=', 2) FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) AS c
		 WHERE r.rolname = $1`, e.schema.Role)
	wanted, name, value := map[string]string{}, "", ""
	if _, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		wanted[strings.ToLower(name)] = value
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	config, err := pgxpool.ParseConfig(e.Admin) // without the library's other settings
	if err != nil {
		t.Fatal(err)
	}
	e.schema.Configure(config)
	config.ConnConfig.RuntimeParams["search_path"] = strings.Trim(config.ConnConfig.RuntimeParams["search_path"], `"`)
	if diff := cmp.Diff(wanted, config.ConnConfig.RuntimeParams); diff != "" {
		t.Errorf("settings of the role (-want), of the pool (+got):\n%s", diff)
	}
}
