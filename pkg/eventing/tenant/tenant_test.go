package tenant

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/bounded"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestReadWithoutRowsKeepsItsStatements counts the plans of a statement: those of a statement
// that was prepared again begin at 0.
func TestReadWithoutRowsKeepsItsStatements(t *testing.T) {
	t.Parallel()
	made := pgtest.New(t)
	db := made.Pool(t, made.URL+"&pool_max_conns=1")
	role := pgtest.Value[string](t, db, `SELECT current_user`)
	const query, reads = `SELECT 1 WHERE $1::boolean`, 3
	for range reads {
		err := One(role, "acme").Read(t.Context(), db, func(rows pgx.Rows) error {
			_, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
			return err
		}, query, false)
		if !errors.Is(err, pgx.ErrNoRows) {
			t.Fatalf("Read = %v, want the error of its reader", err)
		}
	}
	var plans int
	err := db.QueryRow(t.Context(),
		`SELECT sum(generic_plans + custom_plans) FROM pg_prepared_statements WHERE statement = $1`, query).Scan(&plans)
	if err != nil || plans != reads {
		t.Errorf("the statement was planned or reused %d times since it was prepared, %v; want %d", plans, err, reads)
	}
}

func TestReadFailsWithTheDatabasesError(t *testing.T) {
	t.Parallel()
	made := pgtest.New(t)
	err := One("no_such_role", "acme").Read(t.Context(), made.Pool(t, made.URL), func(rows pgx.Rows) error {
		rows.Close()
		return nil
	}, `SELECT 1`)
	if err == nil {
		t.Error("Read = nil, want the error of a role that does not exist")
	}
}

// A connection that is lost without an error does not hold a read up for as long as its request may last.
func TestALostConnectionEndsARead(t *testing.T) {
	t.Parallel()
	made := pgtest.New(t)
	own := made.Pool(t, made.URL)
	role := pgtest.Value[string](t, own, `SELECT current_user`)
	request, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for name, scope := range map[string]Scope{"one": One(role, "acme"), "every": All()} {
		t.Run(name, func(t *testing.T) {
			db, freeze := pgtest.Freezable(t, own)
			read := func() error {
				return scope.Read(request, db, func(rows pgx.Rows) error {
					_, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
					return err
				}, `SELECT 1`)
			}
			if err := read(); err != nil {
				t.Fatal(err)
			}
			freeze()
			if err := read(); !errors.Is(err, bounded.ErrLimit) || request.Err() != nil {
				t.Errorf("Read = %v, want %v", err, bounded.ErrLimit)
			}
		})
	}
}

// A role, a tenant and other settings end with their transaction. The next user of the connection would
// otherwise run as the tenant before.
func TestNothingOutlivesItsTransaction(t *testing.T) {
	t.Parallel()
	made := pgtest.New(t)
	db := made.Pool(t, made.URL+"&pool_max_conns=1")
	const settings = `SELECT format('%s %s %s %s %s', current_setting('role'), current_setting('eventing.tenant', true),
		current_setting('lock_timeout'), current_setting('plan_cache_mode'), current_setting('enable_bitmapscan'))`
	var role, before string
	if err := db.QueryRow(t.Context(), `SELECT current_user, (`+settings+`)`).Scan(&role, &before); err != nil {
		t.Fatal(err)
	}
	within := func(enter func(*pgx.Batch)) (got string, err error) {
		b := &pgx.Batch{}
		enter(b)
		b.Queue(settings).QueryRow(func(row pgx.Row) error { return row.Scan(&got) })
		err = pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error { return tx.SendBatch(t.Context(), b).Close() })
		return got, err
	}
	type reader func(context.Context, *pgxpool.Pool, func(pgx.Rows) error, string, ...any) error
	read := func(by reader) (got string, err error) {
		err = by(t.Context(), db, func(rows pgx.Rows) (err error) {
			got, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
			return err
		}, settings)
		return got, err
	}
	acme, limit := One(role, "acme"), 70*time.Millisecond
	for name, tc := range map[string]struct {
		run  func() (string, error)
		want string
	}{
		"a tenant":              {func() (string, error) { return within(acme.Enter) }, role + " acme 10s auto on"},
		"a tenant with a limit": {func() (string, error) { return within(func(b *pgx.Batch) { acme.EnterLimited(b, limit) }) }, role + " acme 70ms auto on"},
		"all tenants":           {func() (string, error) { return within(All().Enter) }, "none  10s auto on"},
		"all, with a limit":     {func() (string, error) { return within(func(b *pgx.Batch) { All().EnterLimited(b, limit) }) }, "none  70ms auto on"},
		"a read":                {func() (string, error) { return read(acme.Read) }, role + " acme 10s auto on"},
		"a read of all":         {func() (string, error) { return read(All().Read) }, "none  10s auto on"},
		"a page":                {func() (string, error) { return read(acme.ReadPage) }, role + " acme 10s auto off"},
		"a page of all":         {func() (string, error) { return read(All().ReadPage) }, "none  10s auto off"},
		"a planned read":        {func() (string, error) { return read(acme.ReadReplanned) }, role + " acme 10s force_custom_plan on"},
		"a planned read of all": {func() (string, error) { return read(All().ReadReplanned) }, "none  10s force_custom_plan on"},
	} {
		if got, err := tc.run(); err != nil || got != tc.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, tc.want)
		}
		var after string
		if err := db.QueryRow(t.Context(), settings).Scan(&after); err != nil || after != before {
			t.Errorf("after %s: %q, %v; want %q", name, after, err, before)
		}
	}
	refused := errors.New("refused")
	for range 2 { // with the only connection
		if err := All().Read(t.Context(), db, func(pgx.Rows) error { return refused }, settings); !errors.Is(err, refused) {
			t.Errorf("a read that is given up: %v, want %v", err, refused)
		}
	}
}

// Without statistics, a page is read in the order of its index, and not all rows of the tenant. The same holds for a few rows of another
// table for each row of the page.
func TestAPageNeedsNoStatistics(t *testing.T) {
	t.Parallel()
	made := pgtest.New(t)
	db := made.Pool(t, made.URL+"&pool_max_conns=1")
	role := pgtest.Value[string](t, db, `SELECT current_user`)
	pgtest.Exec(t, made.Pool(t, made.Admin), `
		CREATE TABLE app.things (owner text, id bigint, title text, deleted_at timestamptz, PRIMARY KEY (owner, id)) WITH (autovacuum_enabled = off);
		INSERT INTO app.things SELECT 'me', n, 'title' FROM generate_series(1, 100000) n ORDER BY md5(n::text);
		CREATE TABLE app.parts (thing bigint, part bigint, title text, PRIMARY KEY (thing, part)) WITH (autovacuum_enabled = off);
		INSERT INTO app.parts SELECT n, 1, 'title' FROM generate_series(1, 100000) n ORDER BY md5(n::text);
		GRANT SELECT ON app.things, app.parts TO `+pgx.Identifier{role}.Sanitize())
	var last pgtest.Statement
	traced := last.Of(t, db)
	var ids []int64
	err := One(role, "acme").ReadPage(t.Context(), traced, func(rows pgx.Rows) (err error) {
		ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	}, `
		SELECT id FROM (SELECT id, title FROM things WHERE owner = $1 AND id < $2 AND deleted_at IS NULL ORDER BY id DESC LIMIT $3) AS page
		 CROSS JOIN LATERAL (SELECT count(title) AS n FROM parts WHERE thing = page.id) AS of
		 WHERE n = 1 AND title <> '' ORDER BY id DESC`, "me", 90000, 50)
	if err != nil || len(ids) != 50 || ids[0] != 89999 {
		t.Fatalf("%d rows, %v", len(ids), err)
	}
	if pages := last.Pages(t, db); pages > 500 {
		t.Errorf("a page of 50 rows reads %d database pages", pages)
	}
}
