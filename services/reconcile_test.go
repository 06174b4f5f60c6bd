package services_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing/reconcile"
)

// The tables of both sides have the same rows: a third of them are tombstones. An owner's tombstone keeps its fields, a reader's does not.
const (
	seedVideos = `
		INSERT INTO video.videos (video_id, uploader_id, title, description, duration_seconds, published_at, version, created_at, updated_at, deleted_at, last_event_id)
		SELECT gen_random_uuid(), gen_random_uuid(), 'title "' || n || '", ü', repeat('long ', n %% 50), n, CASE n %% 4 WHEN 0 THEN now() - n * interval '1 s' END, 1 + n %% 7,
		       now() - interval '2 h', now() - interval '1 h' + n * interval '1 us', CASE n %% 3 WHEN 0 THEN now() - interval '1 h' END, gen_random_uuid()
		  FROM generate_series(1, %d) AS n`
	copyVideos = `
		INSERT INTO catalog.video_projection (video_id, uploader_id, title, description, duration_seconds, published_at, version, created_at, updated_at, deleted_at, last_event_id)
		SELECT video_id, CASE WHEN live THEN uploader_id END, CASE WHEN live THEN title ELSE '' END, CASE WHEN live THEN description ELSE '' END, CASE WHEN live THEN duration_seconds ELSE 0 END,
		       CASE WHEN live THEN published_at END, version, CASE WHEN live THEN created_at END, updated_at, deleted_at, last_event_id
		  FROM video.videos, LATERAL (SELECT deleted_at IS NULL AS live) AS l`
)

func (w *world) seed(t testing.TB, videos, likes int) {
	t.Helper()
	w.seedOwner(t, videos, likes)
	w.exec(t, copyVideos)
	w.exec(t, copyEngagements)
	w.exec(t, `ANALYZE`)
}

// seedOwner gives the owner rows without events.
func (w *world) seedOwner(t testing.TB, videos, likes int) {
	t.Helper()
	w.exec(t, fmt.Sprintf(seedVideos, videos))
	w.exec(t, fmt.Sprintf(seedEngagements, likes))
}

// reconciled is the result of `catalog reconcile --json`.
type reconciled struct {
	Code        int
	DryRun      bool           `json:"dry_run"`
	Owner       string         `json:"owner"`
	RowsChecked int            `json:"rows_checked"`
	Differing   map[string]int `json:"differing"`
	Unsettled   int            `json:"unsettled"`
	Repaired    int            `json:"repaired"`
	Refused     int            `json:"refused"`
	Remaining   int            `json:"remaining"`
	Rows        []struct {
		Type string         `json:"aggregate_type"`
		ID   string         `json:"aggregate_id"`
		Kind reconcile.Kind `json:"kind"`
	} `json:"rows"`
}

func (o *operator) reconcile(t *testing.T, flags string) (r reconciled) {
	t.Helper()
	cmd := o.shell(t, "catalog reconcile --json "+flags, "NOTHING=")
	var said strings.Builder
	cmd.Stderr = &said
	out, _ := cmd.Output()
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("catalog reconcile %s: %v, %s: %s, %s", flags, cmd.ProcessState, err, out, said.String())
	}
	r.Code = cmd.ProcessState.ExitCode()
	return r
}

// found are the rows by what is wrong with them.
func (r reconciled) found() (lines []string) {
	for _, row := range r.Rows {
		lines = append(lines, fmt.Sprintf("%s %s %s", row.Kind, row.Type, row.ID))
	}
	slices.Sort(lines)
	return lines
}

// fault is one that somebody makes by hand in some rows of a table: live ones or tombstones.
type fault struct {
	kind       reconcile.Kind
	tombstones bool
	statement  string
}

// replicated is a table of the read model. extra adds rows that the owner does not know.
type replicated struct {
	kind, name, id string
	faults         []fault
	extra          string
}

var videoRows = replicated{
	kind: "video", name: "catalog.video_projection", id: "video_id::text",
	faults: []fault{
		{reconcile.Changed, false, `UPDATE %s SET title = title || ' '`},
		{reconcile.Changed, false, `UPDATE %s SET published_at = coalesce(published_at, now()) + interval '1 us'`},
		{reconcile.Changed, false, `UPDATE %s SET deleted_at = now()`},
		{reconcile.Changed, false, `UPDATE %s SET uploader_id = NULL`},
		{reconcile.Changed, false, `UPDATE %s SET last_event_id = gen_random_uuid()`},
		{reconcile.Changed, false, `UPDATE %s SET updated_at = now() + interval '1 day'`},
		{reconcile.Changed, true, `UPDATE %s SET deleted_at = NULL, uploader_id = video_id`},
		{reconcile.Missing, false, `DELETE FROM %s`},
		{reconcile.Missing, true, `DELETE FROM %s`},
		{reconcile.Ahead, false, `UPDATE %s SET version = version + 9`},
		{reconcile.Behind, false, `UPDATE %s SET version = version - 1, title = 'old'`},
	},
	extra: `INSERT INTO catalog.video_projection (video_id, uploader_id, version, created_at, updated_at)
		SELECT gen_random_uuid(), gen_random_uuid(), n, now() - interval '1 h', now() - interval '1 h' FROM generate_series(1, $1::int) AS n RETURNING %s`,
}

// replicas are the tables of the read model that are compared with the owner.
var replicas = []replicated{
	videoRows,
	engagementRows,
}

// rows is how many rows the read model has, under a condition.
func (w *world) rows(t testing.TB, where string) (n int) {
	t.Helper()
	for _, r := range replicas {
		n += query[int](t, w, fmt.Sprintf(`SELECT count(*) FROM %s WHERE %s`, r.name, where))[0]
	}
	return n
}

// compared is how many rows a whole check compares.
func (w *world) compared(t testing.TB) int {
	t.Helper()
	n := w.rows(t, "true")
	n += w.countedVideos(t)
	return n
}

// damage damages n rows of each table by each fault, and adds n rows that the owner does
// not know. It returns the lines of found for them. It leaves out the videos that are in
// use: live events would repair those.
func (w *world) damage(t testing.TB, n int, inUse ...string) (want []string) {
	t.Helper()
	used := append([]string{}, inUse...)
	for _, r := range replicas {
		for _, f := range r.faults {
			ids := query[string](t, w, fmt.Sprintf(`SELECT %s FROM %s WHERE version > 1 AND (deleted_at IS NOT NULL) = $1 AND %[1]s <> ALL ($2) ORDER BY random() LIMIT $3`, r.id, r.name),
				f.tombstones, used, n)
			if len(ids) != n {
				t.Fatalf("%d rows of %s are left", len(ids), r.name)
			}
			w.exec(t, fmt.Sprintf(f.statement+` WHERE %s = ANY ($1)`, r.name, r.id), ids)
			for _, id := range ids {
				want = append(want, fmt.Sprintf("%s %s %s", f.kind, r.kind, id))
			}
			used = append(used, ids...)
		}
		for _, id := range query[string](t, w, fmt.Sprintf(r.extra, r.id), n) {
			want = append(want, fmt.Sprintf("%s %s %s", reconcile.Extra, r.kind, id))
		}
	}
	want = append(want, w.damageCounters(t, n, used)...)
	slices.Sort(want)
	return want
}

// TestReconcile damages some hundred rows of a read model by hand. `catalog reconcile` finds
// exactly those, and changes nothing until it is told to; then it repairs them, and the next
// check finds none.
func TestReconcile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	w.startVideo(t)
	w.seed(t, 6000, 4000)
	if r, all := o.reconcile(t, ""), w.compared(t); all < 6000 || r.Code != 0 || r.RowsChecked != all || len(r.Rows) > 0 || !r.DryRun {
		t.Fatalf("two equal tables: %+v", r)
	}
	want := w.damage(t, 42)
	for range 2 {
		r := o.reconcile(t, "--repair --rate 0") // which nobody has confirmed
		if r.Code != 1 || !r.DryRun || r.Remaining != len(want) || r.Repaired != 0 || r.Unsettled != 0 {
			t.Errorf("a dry run: code %d, %v, %d remain, %d repaired", r.Code, r.Differing, r.Remaining, r.Repaired)
		}
		if got := r.found(); !slices.Equal(got, want) {
			t.Errorf("found %d rows, want %d: %v", len(got), len(want), firstDifferences(got, want))
		}
	}
	r := o.reconcile(t, `--repair --yes --why "a bad deployment"`)
	if got := r.found(); r.Code != 0 || r.Repaired != len(want) || r.Remaining != 0 || !slices.Equal(got, want) {
		t.Errorf("a repair: code %d, %v, %d repaired, %d remain: %v", r.Code, r.Differing, r.Repaired, r.Remaining, firstDifferences(got, want))
	}
	w.countedAsOwned(t)
	// The rows that the owner does not know are tombstones now, which are not compared.
	if again := o.reconcile(t, ""); again.Code != 0 || len(again.Rows) > 0 || again.RowsChecked != w.compared(t)-len(replicas)*42 {
		t.Errorf("after the repair: %+v, of %d rows", again, w.compared(t))
	}
	if n := query[int64](t, w, `SELECT count(*) FROM catalog.operator_actions WHERE action = 'reconcile' AND actor = 'ada' AND why = 'a bad deployment'`)[0]; n != int64(len(want)) {
		t.Errorf("%d rows are in the audit table, want %d", n, len(want))
	}
	if n := query[int64](t, w, `SELECT count(*) FROM catalog.operator_actions WHERE record->'row'->>'title' = 'old' AND (record->>'version')::int + 1 = version`)[0]; n != 42 {
		t.Errorf("the audit table has %d rows as they were before, want 42", n)
	}
}

func firstDifferences(got, want []string) (lines []string) {
	for line := range maps.Keys(setOf(got, want)) {
		if in, out := slices.Contains(got, line), slices.Contains(want, line); in != out && len(lines) < 10 {
			lines = append(lines, fmt.Sprintf("found %t: %s", in, line))
		}
	}
	return lines
}

func setOf(lists ...[]string) map[string]bool {
	all := map[string]bool{}
	for _, list := range lists {
		for _, line := range list {
			all[line] = true
		}
	}
	return all
}

// TestReconcileWithTheWrongOwner repairs against the owner of another environment, which is
// empty. Every row would become a tombstone; each stays, until a person accepts the losses.
func TestReconcileWithTheWrongOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	w.startVideo(t)
	w.seed(t, 60, 30)
	w.exec(t, `TRUNCATE video.videos, video.engagements`)
	live := func() int { return w.rows(t, "deleted_at IS NULL") }
	all := live()
	if r := o.reconcile(t, `--repair --yes --why test`); r.Owner != w.videoAddr || all < 40 || live() != all || r.Code != 1 || r.Refused != all || r.Remaining != all || r.Repaired != 0 {
		t.Errorf("%d of %d rows are left, %+v", live(), all, r)
	}
	if r := o.reconcile(t, `--repair --yes --why test --accept-losses`); live() != 0 || r.Code != 0 || r.Repaired != all {
		t.Errorf("accepted: %d rows are left, %+v", live(), r)
	}
}

// TestReconcileWithAnotherOwner repairs against the owner of another environment, which has
// rows of its own, and others of the same ids. None of them gets into the read model, and an
// empty read model takes them all.
func TestReconcileWithAnotherOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	w.startVideo(t)
	w.seed(t, 300, 0)
	const rows = `SELECT md5(string_agg(p::text, ',' ORDER BY video_id)) FROM catalog.video_projection p`
	before := query[string](t, w, rows)[0]
	w.exec(t, `DELETE FROM video.videos WHERE video_id NOT IN (SELECT video_id FROM video.videos ORDER BY video_id LIMIT 20)`)
	w.exec(t, `UPDATE video.videos SET title = 'of another environment', last_event_id = gen_random_uuid()`)
	w.seedOwner(t, 400, 0)
	r := o.reconcile(t, `--repair --yes --why test`)
	if after := query[string](t, w, rows)[0]; after != before || r.Code != 1 || r.Repaired != 0 || r.Differing["missing"] != 400 || r.Refused != r.Remaining || r.Refused < 500 {
		t.Errorf("the rows are as before: %t; %d repaired, %d refused, %d remain, %v", after == before, r.Repaired, r.Refused, r.Remaining, r.Differing)
	}
	w.exec(t, `TRUNCATE catalog.video_projection`)
	if r := o.reconcile(t, `--repair --yes --why test`); r.Code != 0 || r.Repaired != 420 || r.Refused != 0 {
		t.Errorf("an empty read model: %+v", r)
	}
}

// TestReconcileUnderLoad checks a read model while 200 changes a second go through it, and
// finds no difference. Then rows are damaged: a repair that is killed on its way leaves whole
// rows behind, and the next one repairs the rest. A check without an owner changes nothing.
func TestReconcileUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	stop := w.startVideo(t)
	w.startCatalog(t)
	w.seed(t, 6000, 600)
	c := newClient(t, w.videoAddr)
	ids := c.create(t, 40)

	feed, ending := make(chan string), make(chan struct{})
	wait := c.write(t, feed)
	written := 0
	var feeding sync.WaitGroup
	feeding.Go(func() {
		defer close(feed)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ; ; written++ {
			select {
			case <-ending:
				return
			case <-tick.C:
				feed <- ids[rand.IntN(len(ids))]
			}
		}
	})
	rest := sync.OnceFunc(func() {
		close(ending)
		feeding.Wait()
		wait()
	})
	defer rest()
	for range 5 {
		if r := o.reconcile(t, "--rate 0 --grace 60s"); r.Code != 0 || len(r.Rows) > 0 {
			t.Errorf("after %d changes: code %d, %v", written, r.Code, r.Rows)
		}
	}
	want := w.damage(t, 10, ids...)

	killed := o.shell(t, "exec catalog reconcile --repair --yes --why test --rate 0", "NOTHING=")
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	repairs := func() int64 {
		return query[int64](t, w, `SELECT count(*) FROM catalog.operator_actions WHERE action = 'reconcile'`)[0]
	}
	eventually(t, "some rows are repaired", func() bool { return repairs() > 0 })
	_ = killed.Process.Kill()
	_ = killed.Wait()
	before := repairs()
	r := o.reconcile(t, "--repair --yes --why test --rate 0 --grace 60s")
	if r.Code != 0 || r.Remaining != 0 || int(before)+r.Repaired != len(want) {
		t.Errorf("%d rows repaired before the kill and %d after it, want %d; %d remain", before, r.Repaired, len(want), r.Remaining)
	}
	for _, line := range r.found() {
		if !slices.Contains(want, line) {
			t.Errorf("not damaged: %s", line)
		}
	}
	rest()
	t.Logf("%d changes meanwhile, %d of %d repairs before the kill", written, before, len(want))
	if r := o.reconcile(t, "--grace 60s"); r.Code != 0 || len(r.Rows) > 0 {
		t.Errorf("at rest: %+v", r)
	}

	stop()
	w.damage(t, 1)
	out, err := o.shell(t, "catalog reconcile --repair --yes --why test", "NOTHING=").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "owner cannot be asked") {
		t.Errorf("without an owner: %v: %s", err, out)
	}
	if n := repairs(); n != int64(len(want)) {
		t.Errorf("without an owner there are %d repairs, want %d", n, len(want))
	}
}
