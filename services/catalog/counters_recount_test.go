package catalog

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// popular gives a video n engagements.
func (f *fixture) popular(t testing.TB, id string, n int) {
	t.Helper()
	_, err := f.admin.Exec(t.Context(), `
		INSERT INTO catalog.video_user_engagements_projection (user_id, video_id, liked, watched_seconds, version, updated_at)
		SELECT gen_random_uuid(), $1::text::uuid, true, 2, 1, now() FROM generate_series(1, $2::int)`, id, n)
	if err != nil {
		t.Fatal(err)
	}
}

// videosInOrder are ids of videos, in their order.
func videosInOrder(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%08x-0000-7000-8000-000000000000", i+1))
	}
	return ids
}

// TestCountsInParts: a check counts some videos at a time, and a popular one by itself. It
// finds the wrong counters, of videos without engagements too, and a repair of those alone
// puts them right and records what it has added.
func TestCountsInParts(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	ids := videosInOrder(6)
	for i, n := range []int{10, 3 * reconcile.PartRows, 10, reconcile.PartRows - 20, 10} {
		f.popular(t, ids[i], n)
	}
	wrong := []string{ids[1], ids[4], ids[5]}
	for i, damage := range []string{
		`UPDATE catalog.video_counters SET likes = likes + 1 WHERE video_id = $1::text::uuid`,
		`DELETE FROM catalog.video_counters WHERE video_id = $1::text::uuid`,
		`INSERT INTO catalog.video_counters VALUES ($1::text::uuid, 'UPDATE', 0, 5, 0)`,
	} {
		pgtest.Exec(t, f.admin, damage, wrong[i])
	}
	c := counters{f.pool}
	var parts, found []string
	rows := int64(0)
	for from, end := uuid.Nil.String(), uuid.Max.String(); from != end; {
		part, err := c.Count(t.Context(), reconcile.Range{From: from, Until: end})
		if err != nil || part.Uncounted > 0 || part.Until <= from {
			t.Fatal(part, err)
		}
		parts, found, from, rows = append(parts, part.Until), append(found, part.Wrong...), part.Until, rows+part.Rows
	}
	after := reconcile.Only(ids[1]).Until
	if want := []string{ids[1], after, uuid.Max.String()}; !slices.Equal(parts, want) || rows != 5 {
		t.Errorf("%d counters in parts up to %v, want %v", rows, parts, want)
	}
	if !slices.Equal(found, wrong) {
		t.Errorf("wrong are %v, want %v", found, wrong)
	}
	repaired, err := c.Recount(t.Context(), audit.Actor{By: "ada"}, append(ids[:1:1], wrong[:2]...))
	if err != nil || !slices.Equal(repaired, wrong[:2]) || f.drifting(t) != 1 {
		t.Errorf("repaired %v (%v), %d videos are wrong still", repaired, err, f.drifting(t))
	}
	left, err := reconcile.Recount{Counters: c}.Still(t.Context(), []reconcile.Difference{{ID: ids[1]}, {ID: ids[5]}})
	if err != nil || len(left) != 1 || left[0].ID != ids[5] || left[0].Kind != reconcile.Counter {
		t.Errorf("left are %v, %v", left, err)
	}
	record := pgtest.Value[string](t, f.admin, `
		SELECT string_agg(concat_ws(' ', aggregate_type, aggregate_id, record->'added'->>'likes', record->'added'->>'watched_seconds'), ', ' ORDER BY aggregate_id)
		  FROM catalog.operator_actions WHERE action = 'reconcile'`)
	if want := fmt.Sprintf("video_counters %s -1 0, video_counters %s 10 20", ids[1], ids[4]); record != want {
		t.Errorf("the audit table has %q, want %q", record, want)
	}
}

// TestAnUncountedVideo: a video whose engagements cannot be counted in time is no difference,
// and the check goes on behind it.
func TestAnUncountedVideo(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	ids := videosInOrder(2)
	f.popular(t, ids[0], reconcile.PartRows+1)
	_, err := f.admin.Exec(t.Context(), strings.ReplaceAll(`
		CREATE FUNCTION catalog.out_of_time() RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE SQLSTATE '57014'; END $$;
		CREATE OR REPLACE VIEW catalog.video_counter_drift AS
		SELECT video_id, likes, bookmarks, watched_seconds FROM catalog.video_counters WHERE video_id <> '{popular}' OR catalog.out_of_time()`, "{popular}", ids[0]))
	if err != nil {
		t.Fatal(err)
	}
	f.popular(t, ids[1], 1)
	checks, said := f.watching(time.Hour)
	checks.checks = []reconcile.Checker{reconcile.Recount{Counters: counters{f.pool}}}
	if err := checks.checkAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kind=counter", ids[1], "aggregate_type=video_counters", "differing=1 unsettled=1"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the check does not say %s: %s", want, said)
		}
	}
}

// A part of a check reads its own engagements and no others.
func TestPlanOfACount(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	pgtest.Exec(t, f.admin, `
		INSERT INTO catalog.video_user_engagements_projection (user_id, video_id, liked, version, updated_at)
		SELECT gen_random_uuid(), (lpad(to_hex(1 + n / 1000), 8, '0') || '-0000-7000-8000-000000000000')::uuid, true, 1, now()
		  FROM generate_series(0, 39999) AS n;
		ANALYZE catalog.video_user_engagements_projection; ANALYZE catalog.video_counters`)
	in := reconcile.Range{From: videosInOrder(20)[19], Until: uuid.Max.String()}
	part, err := counters{f.pool}.Count(t.Context(), in)
	if err != nil || part.Rows != 4 {
		t.Fatal(part, err)
	}
	// Of 40,000 rows, on some 500 pages.
	bound := pgtest.Statement{SQL: boundOfCount, Args: []any{in.From, in.Until, reconcile.PartRows}}
	wrong := pgtest.Statement{SQL: wrongCounters, Args: []any{in.From, part.Until}}
	ofBound, ofWrong := bound.Pages(t, f.pool), wrong.Pages(t, f.pool)
	t.Logf("%d and %d pages", ofBound, ofWrong)
	if ofBound+ofWrong > 200 {
		t.Errorf("a part reads %d pages for its end, and %d for its counters", ofBound, ofWrong)
	}
}
