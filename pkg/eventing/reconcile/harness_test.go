package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/reconcile"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The owner's table and the reader's, in one database. An owner has its epoch in another
// table.
const schema = `
	CREATE TABLE app.owned (a uuid, b uuid, body text, due timestamptz, version bigint NOT NULL, created_at timestamptz, updated_at timestamptz NOT NULL,
		deleted_at timestamptz, last_event_id uuid, PRIMARY KEY (a, b));
	CREATE TABLE app.copied (LIKE app.owned INCLUDING ALL, epoch bigint NOT NULL DEFAULT 1);
	CREATE TABLE app.present (epoch bigint);
	INSERT INTO app.present VALUES (1);
	GRANT SELECT ON app.owned, app.copied, app.present TO app_service`

const columns = `a, b, body, due, version, created_at, updated_at, deleted_at, last_event_id`

// pair is an owner's table and a read model of it.
type pair struct {
	reconcile.Comparison

	admin, db *pgxpool.Pool
	owner     *owner

	passed []string
	rows   int64
	found  []reconcile.Difference
	// waited has the numbers of the rows for which the check has waited, and retried the errors after which it read again.
	waited  []int
	retried []error
}

// owner is the owner's table. before is called before each answer, and after after it, with
// the number of the call.
type owner struct {
	*reconcile.Table

	calls         int
	before, after func(call int)
}

func (o *owner) Part(ctx context.Context, d reconcile.Definition, from string) (reconcile.Part, error) {
	defer o.called()()
	return o.Table.Part(ctx, d, from)
}

func (o *owner) Page(ctx context.Context, d reconcile.Definition, r reconcile.Range) (reconcile.Page, error) {
	defer o.called()()
	return o.Table.Page(ctx, d, r)
}

func (o *owner) called() (end func()) {
	o.calls++
	if o.before != nil {
		o.before(o.calls)
	}
	return func() {
		if o.after != nil {
			o.after(o.calls)
		}
	}
}

func newPair(t *testing.T, rows int) *pair {
	t.Helper()
	pg := pgtest.New(t)
	p := &pair{admin: pg.Pool(t, pg.Admin)}
	p.exec(t, schema)
	p.exec(t, `INSERT INTO app.owned SELECT gen_random_uuid(), gen_random_uuid(), 'body ' || n, CASE n % 2 WHEN 0 THEN now() END, 1 + n % 5, now() - interval '2 h',
		now() - interval '1 h', CASE n % 5 WHEN 0 THEN now() END, CASE n % 7 WHEN 0 THEN NULL ELSE gen_random_uuid() END FROM generate_series(1, $1::int) AS n`, rows)
	p.exec(t, `INSERT INTO app.copied SELECT `+columns+` FROM app.owned`)
	p.db = pg.Pool(t, pg.URL)
	p.owner = &owner{Table: reconcile.NewTable(p.db, "owned", []string{"a", "b"}, columns, `(SELECT max(epoch) FROM present)`)}
	p.Comparison = reconcile.Comparison{
		Model: model{}, Owner: p.owner, Reader: reconcile.NewTable(p.db, "copied", []string{"a", "b"}, columns+", epoch", reconcile.ColumnEpoch),
	}
	return p
}

func openPool(t *testing.T, config *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.Open(t, config)
	return pool
}

// model is the type of the read model.
type model struct{}

func (model) Type() string { return "row" }

func (model) Replace(context.Context, audit.Actor, []reconcile.Row, reconcile.Standing) ([]string, error) {
	panic("a check repairs nothing")
}

// Passed, Waits, Retries and Differ are those of a reconcile.Observer.
func (p *pair) Passed(_ context.Context, next string, rows int64) error {
	p.passed, p.rows = append(p.passed, next), p.rows+rows
	return nil
}

func (p *pair) Waits(_ context.Context, rows int) { p.waited = append(p.waited, rows) }

func (p *pair) Retries(_ context.Context, err error) { p.retried = append(p.retried, err) }

func (p *pair) Differ(_ context.Context, found []reconcile.Difference) error {
	p.found = append(p.found, found...)
	return nil
}

// check makes a check, and returns the differences in the form "kind id".
func (p *pair) check(t *testing.T, o reconcile.Options) (found []string, unsettled int) {
	t.Helper()
	p.passed, p.rows, p.found, p.waited, p.retried = nil, 0, nil, nil, nil
	unsettled, err := p.Check(t.Context(), o, p)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range p.found {
		found = append(found, fmt.Sprintf("%s %s", d.Kind, d.ID))
	}
	slices.Sort(found)
	return found, unsettled
}

func (p *pair) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	pgtest.Exec(t, p.admin, sql, args...)
}

// damage runs an UPDATE or DELETE of a copied row, or an INSERT into the copies, and returns
// the row's id.
func (p *pair) damage(t *testing.T, sql string, args ...any) (id string) {
	t.Helper()
	return pgtest.Value[string](t, p.admin, sql+` RETURNING a || ':' || b`, args...)
}

// some selects one live copy by its place among all; places of one test differ.
func some(place int) string {
	return fmt.Sprintf(`(a, b) = (SELECT a, b FROM app.owned WHERE deleted_at IS NULL AND version > 1 AND last_event_id IS NOT NULL ORDER BY a, b OFFSET %d LIMIT 1)`, place)
}

var long = time.Hour // a grace period that does not end in a test

func newID() string { return uuid.NewString() }
