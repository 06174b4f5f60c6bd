package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/migrate"
)

// A dump of a database has no settings and no memberships of roles, and logical replication copies no sequences. After
// either, Up makes a schema on another server complete, although each of its migrations is applied.
func TestASchemaFromAnotherServer(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	admin := pg.Pool(t, pg.Admin)
	schema := orders
	schema.Name = "moved_" + uuid.NewString()[:8] // roles belong to the server, which tests share
	schema.Role, schema.RequestRole = schema.Name, schema.Name+"_api"
	do := func(sql string) {
		t.Helper()
		pgtest.Exec(t, admin, fmt.Sprintf(sql, schema.Name))
	}
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), pg.Admin)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), fmt.Sprintf(`DROP OWNED BY %s, %[1]s_api; DROP ROLE %[1]s, %[1]s_api`, schema.Role)); err != nil {
			t.Error(err)
		}
	})
	up := func() {
		t.Helper()
		if err := schema.Up(t.Context(), pg.Admin, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	const settings = `SELECT array(SELECT lower(c) FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) AS c
		WHERE r.rolname = $1 AND s.setdatabase = 0 ORDER BY 1)::text`
	read := func() (found string) {
		t.Helper()
		return pgtest.Value[string](t, admin, settings, schema.Role)
	}
	up()
	made := read()

	do(`ALTER ROLE %s RESET ALL`)
	do(`ALTER ROLE %[1]s SET search_path = %[1]s`)
	do(`REVOKE %[1]s_api FROM %[1]s`)
	const action = `INSERT INTO %s.operator_actions (action, actor, why) VALUES ('skip', 'ada', 'test')`
	do(action)
	for _, table := range []string{"goose_db_version", "operator_actions"} {
		do(`SELECT setval('%s.` + table + `_id_seq', 1, false)`)
	}
	if err := schema.Check(t.Context(), pg.Pool(t, pg.As(t, schema.Role))); !errors.Is(err, migrate.ErrBehind) {
		t.Errorf("the moved schema: %v, want %v", err, migrate.ErrBehind)
	}
	do(`DELETE FROM %s.goose_db_version WHERE version_id = 1000; DROP TABLE %[1]s.orders`) // as if this release had a new migration
	up()
	if got := read(); got != made {
		t.Errorf("settings of the role:\n%s\nwant\n%s", got, made)
	}
	if err := schema.Check(t.Context(), pg.Pool(t, pg.As(t, schema.Role))); err != nil {
		t.Error(err)
	}
	do(action)
}

// Sequences of the service's own tables stay as they are. An application may use numbers as it likes: beyond a gap, in
// a text, or in another table.
func TestSequencesOfTheServiceStay(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	admin := pg.Pool(t, pg.Admin)
	schema := orders
	schema.Name = "numbers_" + uuid.NewString()[:8]
	up := func() {
		t.Helper()
		if err := schema.Up(t.Context(), pg.Admin, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	up()
	pgtest.Exec(t, admin, fmt.Sprintf(`
		CREATE TABLE %[1]s.own (id bigint PRIMARY KEY);
		CREATE SEQUENCE %[1]s.ids START 1000 OWNED BY %[1]s.own.id;
		INSERT INTO %[1]s.own VALUES (5);
		CREATE TABLE %[1]s.texts (code text);
		CREATE SEQUENCE %[1]s.codes OWNED BY %[1]s.texts.code;
		INSERT INTO %[1]s.texts VALUES ('2026-7')`, schema.Name))
	up()
	var next int64
	if err := admin.QueryRow(t.Context(), `SELECT nextval($1::text::regclass)`, schema.Name+".ids").Scan(&next); err != nil || next != 1000 {
		t.Errorf("the next id is %d, %v; want 1000", next, err)
	}
}
