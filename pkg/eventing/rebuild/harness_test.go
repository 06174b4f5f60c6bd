package rebuild_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/projection"
	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/pkg/eventing/reconcile"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// schema has two read models and their owner's tables, in one database. The second one is
// counted by triggers, and a view is made of it. Its rows can be wrong in its column body.
const schema = `
	CREATE TABLE owned_one (a uuid PRIMARY KEY, body text, version bigint NOT NULL, created_at timestamptz, updated_at timestamptz NOT NULL DEFAULT now(),
		deleted_at timestamptz, last_event_id uuid);
	CREATE TABLE one (LIKE owned_one INCLUDING ALL, epoch bigint NOT NULL DEFAULT 1, CONSTRAINT sense CHECK (version > 0));
	CREATE INDEX one_by_body ON one (body) WHERE deleted_at IS NULL;
	CREATE UNIQUE INDEX one_by_event ON one (last_event_id);
	GRANT SELECT, INSERT, UPDATE ON one TO app_service;
	GRANT SELECT ON one TO PUBLIC;
	ALTER TABLE one SET (fillfactor = 80, autovacuum_enabled = true);
	CREATE TABLE owned_two (a uuid, b uuid, body text, version bigint NOT NULL, created_at timestamptz, updated_at timestamptz NOT NULL DEFAULT now(),
		deleted_at timestamptz, last_event_id uuid, PRIMARY KEY (a, b));
	CREATE TABLE two (LIKE owned_two INCLUDING ALL, epoch bigint NOT NULL DEFAULT 1);
	GRANT SELECT, INSERT, UPDATE ON two TO app_service;
	CREATE TABLE letters (n bigint NOT NULL);
	INSERT INTO letters VALUES (0);
	GRANT SELECT, UPDATE ON letters TO app_service;
	CREATE FUNCTION count_letters() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
	  UPDATE app.letters SET n = n + coalesce(length(NEW.body), 0) - CASE TG_OP WHEN 'UPDATE' THEN coalesce(length(OLD.body), 0) ELSE 0 END;
	  RETURN NEW;
	END $$;
	CREATE TRIGGER count_letters AFTER INSERT OR UPDATE ON two FOR EACH ROW EXECUTE FUNCTION count_letters();
	CREATE VIEW spelled AS SELECT coalesce(sum(length(body)), 0)::bigint AS n FROM two;
	GRANT SELECT ON spelled TO app_service;
	CREATE TABLE present (epoch bigint);
	INSERT INTO present VALUES (1)`

const recount = `UPDATE letters SET n = (SELECT n FROM spelled)`

// table is one type of aggregate, and the ways to its owner.
type table struct {
	name, columns, conflict string
	key                     []string
}

var (
	one = table{"one", "a, body, version, created_at, updated_at, deleted_at, last_event_id", "a", []string{"a"}}
	two = table{"two", "a, b, body, version, created_at, updated_at, deleted_at, last_event_id", "a, b", []string{"a", "b"}}
)

// fixture is a read model with a rebuild of it.
type fixture struct {
	*rebuild.Rebuild

	pg    *pgtest.DB
	admin *pgxpool.Pool // as the owner of the schema
	app   *pgxpool.Pool // as the service
	// at is called between the steps of a rebuild, with their names.
	at      func(step string)
	replace func(table string) // is called before a repair
	left    []string           // are the kinds and the ids of rows that were left
}

func newFixture(t *testing.T, rows int) *fixture {
	t.Helper()
	pg := pgtest.New(t)
	f := &fixture{pg: pg, admin: ownerPool(t, pg, nil), app: pg.Pool(t, pg.URL), at: func(string) {}, replace: func(string) {}}
	f.exec(t, schema)
	for _, at := range []table{one, two} {
		f.exec(t, fmt.Sprintf(`INSERT INTO owned_%s (%s, body, version, created_at, updated_at, last_event_id)
			SELECT %s, 'body ' || n, 1 + n %% 5, now() - interval '2 h', now() - interval '1 h', gen_random_uuid() FROM generate_series(1, %d) AS n`,
			at.name, at.conflict, strings.TrimSuffix(strings.Repeat("gen_random_uuid(), ", len(at.key)), ", "), rows))
		f.exec(t, fmt.Sprintf(`INSERT INTO %s (%s) SELECT %[2]s FROM owned_%[1]s`, at.name, at.columns))
	}
	f.Rebuild = rebuild.New(f.admin, recount, f.part(one), f.part(two))
	return f
}

// asOwner makes a role that is no administrator the owner of the schema, and the rebuild's.
func (f *fixture) asOwner(t *testing.T) {
	t.Helper()
	const role = "rebuild_owner"
	f.exec(t, `DO $$ BEGIN CREATE ROLE `+role+`; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$`)
	for _, sql := range ask[string](t, f, `
		SELECT 'ALTER SCHEMA app OWNER TO `+role+`' UNION ALL
		SELECT format('ALTER TABLE %s OWNER TO `+role+`', oid::regclass) FROM pg_class WHERE relnamespace = 'app'::regnamespace AND relkind IN ('r', 'v') UNION ALL
		SELECT format('ALTER ROUTINE %s OWNER TO `+role+`', oid::regprocedure) FROM pg_proc WHERE pronamespace = 'app'::regnamespace`) {
		f.exec(t, sql)
	}
	f.connect(t, nil, `SET ROLE `+role)
}

// connect gives the fixture and its rebuild a new pool; see ownerPool.
func (f *fixture) connect(t *testing.T, tracer pgx.QueryTracer, first ...string) {
	t.Helper()
	f.admin = ownerPool(t, f.pg, tracer, first...)
	f.Rebuild = rebuild.New(f.admin, recount, f.part(one), f.part(two))
}

// ownerPool connects as the owner of the schema app, and runs statements in each session. tracer may be nil.
func ownerPool(t *testing.T, pg *pgtest.DB, tracer pgx.QueryTracer, first ...string) *pgxpool.Pool {
	t.Helper()
	cfg := pgtest.Settings(t, pg.Admin)
	cfg.ConnConfig.Tracer = tracer
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		for _, sql := range first {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return rebuild.Session("app")(ctx, conn)
	}
	cfg.MaxConns = 8
	pool := pgtest.Open(t, cfg)
	return pool
}

func (f *fixture) part(at table) rebuild.Part {
	owner := reconcile.NewTable(f.admin, "owned_"+at.name, at.key, at.columns, `(SELECT max(epoch) FROM present)`)
	compare := func(name string) reconcile.Comparison {
		return reconcile.Comparison{
			Model: model{f, at, name}, Owner: owner, Reader: reconcile.NewTable(f.admin, name, at.key, at.columns, reconcile.ColumnEpoch),
		}
	}
	return rebuild.Part{
		Table: at.name, Key: at.key, Shadow: model{f, at, rebuild.Shadow(at.name)},
		Before: compare(rebuild.Shadow(at.name)), After: compare(at.name),
	}
}

// model moves the rows of one copy.
type model struct {
	*fixture

	table
	into string
}

func (m model) Type() string { return "type " + m.name }

// Fill adopts pages of 100 rows: a row moves to a higher version only. As in package projection, a write has a time limit.
func (m model) Fill(ctx context.Context, from string) (f projection.Filled, err error) {
	m.at("fill " + m.name)
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	f.AsOf = time.Now()
	sql := fmt.Sprintf(`
		WITH page AS (SELECT * FROM owned_%[1]s WHERE concat_ws(':', %[2]s) COLLATE "C" >= $1 ORDER BY concat_ws(':', %[2]s) COLLATE "C" LIMIT 101),
		mine AS (SELECT * FROM page ORDER BY concat_ws(':', %[2]s) COLLATE "C" LIMIT 100),
		moved AS (INSERT INTO %[3]s AS c (%[4]s) SELECT %[4]s FROM mine ON CONFLICT (%[2]s) DO UPDATE
			SET (%[4]s) = (SELECT %[5]s) WHERE c.version < excluded.version RETURNING 1)
		SELECT (SELECT count(*) FROM mine), (SELECT count(*) FROM moved),
		       coalesce((SELECT concat_ws(':', %[2]s) FROM page ORDER BY concat_ws(':', %[2]s) COLLATE "C" OFFSET 100), '')`,
		m.name, m.conflict, m.into, m.columns, "excluded."+strings.ReplaceAll(m.columns, ", ", ", excluded."))
	err = m.admin.QueryRow(ctx, sql, from).Scan(&f.Rows, &f.Written, &f.Next)
	f.Done = f.Next == ""
	return f, err
}

// Replace writes the owner's rows, or tombstones, over rows that are where they were seen, or
// older.
func (m model) Replace(ctx context.Context, _ audit.Actor, seen []reconcile.Row, _ reconcile.Standing) (replaced []string, err error) {
	m.replace(m.into)
	var ids []string
	var versions []int64
	for _, row := range seen {
		ids, versions = append(ids, row.ID), append(versions, row.Version)
	}
	err = pgx.BeginFunc(ctx, m.admin, func(tx pgx.Tx) error {
		for _, sql := range []string{
			fmt.Sprintf(`UPDATE %[1]s SET body = NULL, deleted_at = now() WHERE concat_ws(':', %[2]s, version) IN (SELECT concat_ws(':', id, v) FROM unnest($1::text[], $2::bigint[]) AS s (id, v))
				AND concat_ws(':', %[2]s) NOT IN (SELECT concat_ws(':', %[2]s) FROM owned_%[3]s)`, m.into, m.conflict, m.name),
			fmt.Sprintf(`INSERT INTO %[1]s AS c (%[2]s) SELECT %[2]s FROM owned_%[3]s WHERE concat_ws(':', %[4]s) = ANY ($1)
				ON CONFLICT (%[4]s) DO UPDATE SET (%[2]s) = (SELECT %[5]s)
				WHERE c.version < excluded.version OR c.version = ANY ($2::bigint[])`,
				m.into, m.columns, m.name, m.conflict, "excluded."+strings.ReplaceAll(m.columns, ", ", ", excluded.")),
		} {
			if _, err := tx.Exec(ctx, sql, ids, versions); err != nil {
				return err
			}
		}
		return nil
	})
	return ids, err
}

// Begin and Passed are those of a rebuild.Observer.
func (f *fixture) Begin(p rebuild.Phase, aggregateType string, _ int64) {
	f.at(fmt.Sprintf("begin %s %s", p, aggregateType))
}

func (f *fixture) Passed(int64) { f.at("passed") }

// Left is that of a rebuild.Observer.
func (f *fixture) Left(_, id string, kind reconcile.Kind) {
	f.left = append(f.left, string(kind)+" "+id)
}

// Waits and Retries are those of a rebuild.Observer.
func (*fixture) Waits(string, int) {}

func (f *fixture) Retries(_ string, err error) { f.at("again: " + err.Error()) }

var ada = audit.Actor{By: "ada", Why: "the handler had a fault"}

func (f *fixture) run(t *testing.T) rebuild.Result {
	t.Helper()
	result, err := f.Run(t.Context(), ada, rebuild.Options{Comparison: reconcile.Options{Grace: time.Second}}, f)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func (f *fixture) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	pgtest.Exec(t, f.admin, sql, args...)
}

// serve runs a statement as the service does.
func (f *fixture) serve(t *testing.T, sql string, args ...any) {
	t.Helper()
	if tag, err := f.app.Exec(t.Context(), sql, args...); err != nil || tag.RowsAffected() == 0 {
		t.Fatalf("%s: %s, %v", sql, tag, err)
	}
}

func ask[T any](t *testing.T, f *fixture, sql string, args ...any) (all []T) {
	t.Helper()
	rows, _ := f.admin.Query(t.Context(), sql, args...)
	all, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return all
}

// phase fails the test unless the rebuild is in this phase.
func (f *fixture) phase(t *testing.T, want rebuild.Phase) {
	t.Helper()
	if s, err := f.State(t.Context()); err != nil || s.Phase != want {
		t.Errorf("the rebuild is %q, %v; want %q", s.Phase, err, want)
	}
}

// same fails the test unless each read model, and its copy if there is one, has its owner's
// rows, and the letters are counted.
func (f *fixture) same(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		at := map[bool]table{true: one, false: two}[strings.HasPrefix(name, "one")]
		if n := ask[int64](t, f, fmt.Sprintf(`
			SELECT count(*) FROM owned_%s AS o FULL JOIN %s AS r USING (%s)
			 WHERE (o.body, o.version, o.last_event_id) IS DISTINCT FROM (r.body, r.version, r.last_event_id)`, at.name, name, at.conflict))[0]; n != 0 {
			t.Errorf("%d rows of %s differ from their owner's", n, name)
		}
	}
	if n := ask[int64](t, f, `SELECT (SELECT sum(length(body)) FROM two) - (SELECT n FROM letters)`)[0]; n != 0 {
		t.Errorf("%d letters are not counted", n)
	}
	if n := ask[int64](t, f, `SELECT (SELECT sum(length(body)) FROM two) - (SELECT n FROM spelled)`)[0]; n != 0 {
		t.Errorf("the view differs by %d letters from the table that is served", n)
	}
}

// oid identifies the table one that is served.
func (f *fixture) oid(t *testing.T) int64 {
	t.Helper()
	return ask[int64](t, f, `SELECT 'one'::regclass::oid::bigint`)[0]
}

func newID() string { return uuid.NewString() }
