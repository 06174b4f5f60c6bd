package erasure_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/operator/erasure"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var (
	by    = audit.Actor{By: "ada", Why: "request 4711"}
	types = []string{"video", "engagement"}
)

// owner is the eraser of a user who owns some aggregates, and has no other data.
type owner struct {
	db    *pgxpool.Pool
	owned []string
	fails error // the error of Erase
	away  error // the error of the next call of Owned
	lost  error // the error of Find
	// before are the actions in the audit table when Erase began.
	before []string
}

func (o *owner) Find(context.Context) ([]erasure.Found, error) { return nil, o.lost }

func (o *owner) Erase(ctx context.Context, _ audit.Actor, _ func()) (err error) {
	if o.before, err = actions(ctx, o.db); err != nil {
		return err
	}
	return o.fails
}

func (o *owner) Owned(_ context.Context, aggregateType string, ids []string) (_ []string, err error) {
	err, o.away = o.away, nil
	return slices.DeleteFunc(ids, func(id string) bool { return !slices.Contains(o.owned, aggregateType+" "+id) }), err
}

func actions(ctx context.Context, db *pgxpool.Pool) ([]string, error) {
	rows, _ := db.Query(ctx, `SELECT concat_ws(' ', action, actor, aggregate_type) FROM operator_actions WHERE actor = 'ada' ORDER BY id`)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// newAudit writes a record of each of n aggregates of every type.
func newAudit(t *testing.T, n int) *pgxpool.Pool {
	t.Helper()
	pg := pgtest.New(t)
	db := pg.Pool(t, pg.URL)
	var subjects []audit.Subject
	for _, aggregateType := range types {
		for i := range n {
			subjects = append(subjects, audit.Subject{AggregateType: aggregateType, AggregateID: fmt.Sprintf("%04d", i), Record: json.RawMessage(`{}`)})
		}
	}
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		return audit.Write(t.Context(), tx, "discard", audit.Actor{By: "bob"}, subjects...)
	})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// The records are found on each of several pages, of each type, and also behind a page on which the
// user has none.
func TestRecordsOfManyAggregates(t *testing.T) {
	t.Parallel()
	const n = 1100 // more than two pages
	db := newAudit(t, n)
	o := &owner{db: db, owned: []string{"video 0000", "video 1099", "engagement 0700", "engagement 1099", "other 0001"}}
	const what = "aggregates of which the audit table keeps content"
	found, err := erasure.Find(t.Context(), db, o, types)
	if diff := cmp.Diff([]erasure.Found{{What: what, Count: 4}}, found); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	user := uuid.New()
	left, err := erasure.Run(t.Context(), db, o, erasure.Options{User: user}, by, types, func() {})
	if diff := cmp.Diff([]erasure.Found{{What: what}}, left); diff != "" || err != nil {
		t.Errorf("left, %v (-want +got):\n%s", err, diff)
	}
	got, err := actions(t.Context(), db)
	if diff := cmp.Diff([]string{"erase ada user", "forget ada ", "forget ada ", "forget ada ", "forget ada ", "erased ada user"}, got); diff != "" || err != nil {
		t.Errorf("audit, %v (-want +got):\n%s", err, diff)
	}
	if !slices.Equal(o.before, []string{"erase ada user"}) {
		t.Errorf("before the first change the audit table has %q", o.before)
	}
	var kept int
	var record string
	err = db.QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM operator_actions WHERE actor = 'bob' AND record IS NOT NULL),
		       (SELECT record::text FROM operator_actions WHERE action = 'erased' AND aggregate_id = $1)`, user.String()).Scan(&kept, &record)
	if err != nil || kept != len(types)*n-4 || record != `{"left": [{"what": "`+what+`", "count": 0}]}` {
		t.Errorf("%d records are kept, and the entry has %s (%v)", kept, record, err)
	}
}

// An erasure that fails has an entry of its begin alone, and has removed no record.
func TestAnErasureThatFails(t *testing.T) {
	t.Parallel()
	db, failed := newAudit(t, 1), errors.New("the owner is away")
	o := &owner{db: db, owned: []string{"video 0000"}, fails: failed}
	if _, err := erasure.Run(t.Context(), db, o, erasure.Options{User: uuid.New()}, by, types, func() {}); !errors.Is(err, failed) {
		t.Errorf("%v, want %v", err, failed)
	}
	if got, err := actions(t.Context(), db); !slices.Equal(got, []string{"erase ada user"}) || err != nil {
		t.Errorf("the audit table has %q, %v", got, err)
	}
	// Without a name there is no entry, and so no change. Without an answer of the owner it is not known what is left.
	if _, err := erasure.Run(t.Context(), db, nil, erasure.Options{User: uuid.New()}, audit.Actor{}, types, func() {}); err == nil {
		t.Error("it has erased without a name")
	}
	for name, away := range map[string]owner{"away": {db: db, away: failed, owned: o.owned}, "lost": {db: db, lost: failed}} {
		run, find := away, away
		if _, err := erasure.Run(t.Context(), db, &run, erasure.Options{User: uuid.New()}, by, append(types, "none"), func() {}); !errors.Is(err, failed) {
			t.Errorf("%s: %v, want %v", name, err, failed)
		}
		if _, err := erasure.Find(t.Context(), db, &find, types); !errors.Is(err, failed) {
			t.Errorf("find, %s: %v, want %v", name, err, failed)
		}
	}
}
