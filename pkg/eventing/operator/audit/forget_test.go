package audit_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Forget removes the content of the named aggregates only, and leaves who did it, when and
// why. The service's role can do no more to the table than that.
func TestForget(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	db, ctx := pg.Pool(t, pg.URL), t.Context()
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		var subjects []audit.Subject
		for i := range 700 { // more than a page
			subjects = append(subjects, audit.Subject{AggregateType: "video", AggregateID: fmt.Sprintf("v%03d", i), Record: json.RawMessage(`{"text": "x"}`)})
		}
		subjects = append(subjects, audit.Subject{AggregateType: "video", AggregateID: "w"},
			audit.Subject{AggregateType: "engagement", AggregateID: "v000", Record: json.RawMessage(`{"text": "y"}`)})
		return audit.Write(ctx, tx, "discard", audit.Actor{By: "bob", Why: "poison"}, subjects...)
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for after, last := "", false; !last; {
		var ids []string
		if ids, last, err = audit.Recorded(ctx, db, "video", after); err != nil {
			t.Fatal(err)
		}
		all = append(all, ids...)
		after = ids[len(ids)-1]
	}
	if len(all) != 700 || all[0] != "v000" || all[699] != "v699" {
		t.Errorf("%d aggregates have a record", len(all))
	}
	by := audit.Actor{By: "ada", Why: "request 4711"}
	for _, want := range []int64{2, 0} {
		if n, err := audit.Forget(ctx, db, by, "video", []string{"v000", "v699", "w"}); err != nil || n != want {
			t.Errorf("%d forgotten, %v, want %d", n, err, want)
		}
	}
	var kept, forgotten, entries, calls int
	if err := db.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE actor = 'bob' AND why = 'poison' AND record IS NOT NULL),
		       count(*) FILTER (WHERE actor = 'bob' AND why = 'poison' AND record IS NULL),
		       count(*) FILTER (WHERE action = 'forget' AND actor = 'ada' AND why = 'request 4711' AND record->>'records' = '2'),
		       count(*) FILTER (WHERE action = 'forget')
		  FROM operator_actions`).Scan(&kept, &forgotten, &entries, &calls); err != nil || kept != 699 || forgotten != 3 || entries != 1 || calls != 1 {
		t.Errorf("%d entries have their record, %d have none, and %d of %d say so (%v), want 699, 3, and 1 of 1", kept, forgotten, entries, calls, err)
	}
	if _, err := audit.Forget(ctx, db, audit.Actor{}, "video", []string{"v001"}); err == nil {
		t.Error("records are forgotten without a person")
	}
	for _, sql := range []string{`UPDATE operator_actions SET record = NULL`, `DELETE FROM operator_actions`} {
		if _, err := db.Exec(ctx, sql); err == nil {
			t.Errorf("the service's role may %s", sql)
		}
	}
}

// Naming finds a text in the records of these aggregates only: an aggregate of another type may have the same id.
func TestNaming(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	db, ctx := pg.Pool(t, pg.URL), t.Context()
	text := json.RawMessage(`{"uploader_id": "u%1"}`)
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		return audit.Write(ctx, tx, "repair", audit.Actor{By: "bob"},
			audit.Subject{AggregateType: "video", AggregateID: "b", Record: text},
			audit.Subject{AggregateType: "video", AggregateID: "a", Record: text},
			audit.Subject{AggregateType: "video", AggregateID: "a", Record: text},
			audit.Subject{AggregateType: "video", AggregateID: "not asked for", Record: text},
			audit.Subject{AggregateType: "video", AggregateID: "of another", Record: json.RawMessage(`{"uploader_id": "u21"}`)},
			audit.Subject{AggregateType: "video", AggregateID: "a message", Record: json.RawMessage(`{"data": "AXUlMf8="}`)}, // a byte, u%1, a byte
			audit.Subject{AggregateType: "video", AggregateID: "of another", Record: json.RawMessage(`{"data": "AXUyMQ=="}`)},
			audit.Subject{AggregateType: "video", AggregateID: "of another", Record: json.RawMessage(`{"data": "no base64"}`)},
			audit.Subject{AggregateType: "video", AggregateID: "without"},
			audit.Subject{AggregateType: "engagement", AggregateID: "of another", Record: text})
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := audit.Naming(ctx, db, "video", []string{"b", "a", "a message", "of another", "without", "unknown"}, "u%1")
	if err != nil || !slices.Equal(got, []string{"a", "a message", "b"}) {
		t.Errorf("%q, %v; want a, a message and b", got, err)
	}
}
