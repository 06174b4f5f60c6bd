package catalog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/reconcile"
	"example.com/lockstep/pkg/eventing/txn"
)

// differing says that these rows differ from their owner's.
func differing(rows []reconcile.Row) (found []reconcile.Difference) {
	for _, row := range rows {
		found = append(found, reconcile.Difference{ID: row.ID, Kind: reconcile.Changed, Reader: row})
	}
	return found
}

// Two repairs have found the same damage. One of them repairs the row, and the other one finds that it is repaired: the audit
// table has one entry. So it is if one repair is repeated, because the answer to its COMMIT was lost.
func TestADifferenceIsRepairedOnce(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	id := newVideoID()
	f.must(t, 1, createdEvent(id, 1, "first"))
	v := ownersVideo(id, 1, "of the owner")
	f.peer.has(v)
	lossy, armed := new(pgtest.Database).PoolLosingCommits(t, f.pool.Config().ConnString(), func() {})
	entries := func() (n int) {
		t.Helper()
		return pgtest.Value[int](t, f.admin, `SELECT count(*) FROM catalog.operator_actions`)
	}
	for n, tc := range []struct {
		db    *pgxpool.Pool
		loses bool
		want  []int // repairs of each call
	}{
		{f.pool, false, []int{1, 0}},
		{lossy, true, []int{0, 0}},
	} {
		pgtest.Exec(t, f.admin, `UPDATE catalog.video_projection SET title = 'by hand'`)
		videos := NewProjector(tc.db, f.owner, f.waiters, quiet()).Comparisons()[0]
		page, err := videos.Reader.Page(t.Context(), videos.Reader.Definition(), reconcile.Range{From: videos.Reader.Start(), Until: videos.Reader.End()})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range tc.want {
			armed.Store(tc.loses && entries() == n)
			repaired, err := videos.Repair(t.Context(), audit.Actor{By: "ada"}, differing(page.Rows))
			if err != nil || len(repaired) != want || armed.Load() {
				t.Errorf("%v are repaired, %v, want %d", repaired, err, want)
			}
		}
		if got := f.row(t, id).Title; got != "of the owner" || entries() != n+1 {
			t.Errorf("the title is %q, and the audit table has %d entries of %d repairs", got, entries(), n+1)
		}
	}
}

// A row with a time that Go or JSON cannot express holds up no repair of others.
func TestOddRows(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	ids := map[string]uuid.UUID{"wrong": newVideoID(), "far": newVideoID(), "infinite": newVideoID(), "wrong too": newVideoID()}
	for _, id := range ids {
		f.must(t, 1, createdEvent(id, 1, "first"), titled(id, 2, "second"))
		f.peer.has(ownersVideo(id, 2, "of the owner"))
	}
	for name, updatedAt := range map[string]string{"far": "20260-01-01", "infinite": "infinity"} {
		pgtest.Exec(t, f.admin, `UPDATE catalog.video_projection SET updated_at = $2::text::timestamptz WHERE video_id = $1`, ids[name], updatedAt)
	}
	videos := f.projector.Comparisons()[0]
	page, err := videos.Reader.Page(t.Context(), videos.Reader.Definition(), reconcile.Range{From: videos.Reader.Start(), Until: videos.Reader.End()})
	if err != nil || len(page.Rows) != len(ids) {
		t.Fatalf("%d rows, %v", len(page.Rows), err)
	}
	replaced, err := videos.Repair(t.Context(), audit.Actor{By: "ada"}, differing(page.Rows))
	if err != nil || len(replaced) != 3 || slices.Contains(replaced, ids["infinite"].String()) {
		t.Errorf("%v are replaced, %v", replaced, err)
	}
	for name, id := range ids {
		if name != "infinite" && f.row(t, id).Title != "of the owner" {
			t.Errorf("%s: %+v", name, f.row(t, id))
		}
	}
	record := pgtest.Value[string](t, f.admin, `SELECT record::text FROM catalog.operator_actions WHERE aggregate_id = $1::text`, ids["far"].String())
	if !strings.Contains(record, "second") || !strings.Contains(record, "20260") {
		t.Errorf("the audit table has %s", record)
	}
	f.peer.fails(status.Error(codes.Unavailable, "gone"))
	if _, err := videos.Repair(t.Context(), audit.Actor{By: "ada"}, differing(page.Rows)); err == nil {
		t.Error("without an owner a repair ends")
	}
}

// A row that another transaction has locked holds up no repair of others.
func TestALockedRowHoldsUpNoRepair(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	ids := []uuid.UUID{newVideoID(), newVideoID(), newVideoID()}
	for _, id := range ids {
		f.must(t, 1, createdEvent(id, 1, "first"))
		f.peer.has(ownersVideo(id, 2, "of the owner"))
	}
	holder := pgtest.Begin(t, f.admin)
	defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, holder, `SELECT FROM catalog.video_projection WHERE video_id = $1 FOR UPDATE`, ids[1])
	videos := f.projector.Comparisons()[0]
	page, err := videos.Reader.Page(t.Context(), videos.Reader.Definition(), reconcile.Range{From: videos.Reader.Start(), Until: videos.Reader.End()})
	if err != nil {
		t.Fatal(err)
	}
	replaced, err := videos.Repair(t.Context(), audit.Actor{By: "ada"}, differing(page.Rows))
	if want := []string{ids[0].String(), ids[2].String()}; err != nil || !slices.Equal(slices.Sorted(slices.Values(replaced)), slices.Sorted(slices.Values(want))) {
		t.Errorf("%v are replaced, %v; want %v", replaced, err, want)
	}
	pgtest.Exec(t, holder, `LOCK TABLE catalog.video_projection IN EXCLUSIVE MODE`)
	if replaced, err := videos.Repair(t.Context(), audit.Actor{By: "ada"}, differing(page.Rows)); !errors.Is(err, txn.ErrLocked) {
		t.Errorf("with a locked table %v are replaced, %v", replaced, err)
	}
}

// A trigger of the table refuses a row, or an index cannot hold the row's text. No repair of other rows is held up: the
// consumer, too, takes such an error for the fault of the event.
func TestRowsThatTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	_, err := f.admin.Exec(t.Context(), `
		CREATE INDEX ON catalog.video_projection (description);
		CREATE FUNCTION catalog.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF NEW.title = 'refused' THEN RAISE EXCEPTION 'no such title'; END IF; RETURN NEW; END $$;
		CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON catalog.video_projection FOR EACH ROW EXECUTE FUNCTION catalog.refuse()`)
	if err != nil {
		t.Fatal(err)
	}
	refused, long, good := newVideoID(), newVideoID(), newVideoID()
	for id, title := range map[uuid.UUID]string{refused: "refused", long: "long", good: "of the owner"} {
		f.must(t, 1, createdEvent(id, 1, "first"))
		v := ownersVideo(id, 2, title)
		if id == long {
			var text strings.Builder
			for text.Len() < 16_000 { // an index takes a third of a page, compressed
				text.WriteString(uuid.NewString())
			}
			v.Description = text.String()
		}
		f.peer.has(v)
	}
	videos := f.projector.Comparisons()[0]
	page, err := videos.Reader.Page(t.Context(), videos.Reader.Definition(), reconcile.Range{From: videos.Reader.Start(), Until: videos.Reader.End()})
	if err != nil {
		t.Fatal(err)
	}
	replaced, err := videos.Repair(t.Context(), audit.Actor{By: "ada"}, differing(page.Rows))
	if err != nil || !slices.Equal(replaced, []string{good.String()}) {
		t.Errorf("%v are replaced, %v, want %s", replaced, err, good)
	}
}
