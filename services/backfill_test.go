package services_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
)

// backfilled is the result of `catalog backfill --json`.
type backfilled struct {
	Code      int
	Said      string
	Backfills []struct {
		Type        string     `json:"aggregate_type"`
		RowsRead    int        `json:"rows_read"`
		RowsWritten int        `json:"rows_written"`
		FinishedAt  *time.Time `json:"finished_at"`
	} `json:"backfills"`
}

func (o *operator) backfill(t *testing.T, flags string) (b backfilled) {
	t.Helper()
	cmd := o.shell(t, "catalog backfill --json "+flags, "NOTHING=")
	var said strings.Builder
	cmd.Stderr = &said
	out, _ := cmd.Output()
	if err := json.Unmarshal(out, &b); err != nil {
		t.Fatalf("catalog backfill %s: %v: %s, %s", flags, err, out, said.String())
	}
	b.Code, b.Said = cmd.ProcessState.ExitCode(), said.String()
	return b
}

// change changes videos that are there already, and puts and deletes engagements with them,
// until stop is called, which returns how many changes there were. Some videos are deleted.
func (w *world) change(t *testing.T) (stop func() int64) {
	t.Helper()
	live := query[string](t, w, `SELECT video_id::text FROM video.videos WHERE deleted_at IS NULL ORDER BY random() LIMIT 900`)
	var changed atomic.Int64
	var ended atomic.Bool
	var running sync.WaitGroup
	c := newClient(t, w.videoAddr)
	for ids := range slices.Chunk(live, 300) {
		running.Go(func() {
			doomed, kept := ids[:100], ids[100:]
			for put := ""; !ended.Load(); {
				method, path, body := http.MethodPatch, "/v1/videos/"+kept[rand.IntN(len(kept))], fields{"title": uuid.NewString()}
				switch rand.IntN(4) {
				case 0:
					if len(doomed) > 0 {
						method, path, body = http.MethodDelete, "/v1/videos/"+doomed[0], nil
						doomed = doomed[1:]
					}
				case 1:
					put = "/v1/users/" + uuid.NewString() + "/engagements/" + kept[rand.IntN(len(kept))]
					method, path, body = http.MethodPut, put, fields{"liked": true, "watched_seconds": rand.IntN(100)}
				case 2:
					if put != "" {
						method, path, body = http.MethodDelete, put, nil
						put = ""
					}
				}
				// A slow machine may have no connection in time for a write.
				a, err := c.do(t.Context(), method, path, uuid.NewString(), body)
				if err != nil || a.code != http.StatusOK && a.code != http.StatusServiceUnavailable && a.code != http.StatusNotFound {
					t.Errorf("%s %s: %d %s, %v", method, path, a.code, a.Reason, err)
				}
				changed.Add(1)
			}
		})
	}
	return func() int64 {
		ended.Store(true)
		running.Wait()
		return changed.Load()
	}
}

// TestBackfill fills an empty read model while videos are changed and deleted, and
// engagements put and deleted. Their older rows come from no event. The backfill is killed on
// its way, and continues once its lease has ended; meanwhile another one is refused. In the
// end no row differs from its owner's, and the counters are right.
func TestBackfill(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	w.startVideo(t)
	w.startCatalog(t)
	const videos, engagements = 6000, 4000
	w.seedOwner(t, videos, engagements)
	w.exec(t, `ANALYZE`)
	stop := w.change(t)
	killed := o.shell(t, "exec catalog backfill --rate 2000", "NOTHING=")
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	read := func() int {
		return query[int](t, w, `SELECT coalesce(sum(rows_read), 0) FROM catalog.backfills`)[0]
	}
	eventually(t, "some pages are filled", func() bool { return read() > 500 })
	if b := o.backfill(t, "--type video"); b.Code != 1 || !strings.Contains(b.Said, "another backfill runs") {
		t.Errorf("a second backfill: code %d, %s", b.Code, b.Said)
	}
	_ = killed.Process.Kill()
	_ = killed.Wait()
	before := read()
	if b := o.backfill(t, "--type video"); b.Code != 1 || !strings.Contains(b.Said, "if it was killed, try again in") {
		t.Errorf("right after the kill: code %d, %s", b.Code, b.Said)
	}
	w.exec(t, `UPDATE catalog.backfills SET leased_until = clock_timestamp() - interval '1 s'`)

	b := o.backfill(t, "--rate 0")
	if b.Code != 0 || len(b.Backfills) < 2 || before >= videos || b.Backfills[0].RowsRead != videos || b.Backfills[1].RowsRead < engagements {
		t.Errorf("%d rows before the kill, then code %d, %+v, %s", before, b.Code, b.Backfills, b.Said)
	}
	again := o.backfill(t, "")
	for i, state := range again.Backfills {
		if again.Code != 0 || state.FinishedAt == nil || !state.FinishedAt.Equal(*b.Backfills[i].FinishedAt) {
			t.Errorf("once more: code %d, %+v", again.Code, state)
		}
	}
	t.Logf("%d changes meanwhile, %d rows read before the kill, then %+v", stop(), before, b.Backfills)
	if r := o.reconcile(t, "--rate 0 --grace 60s"); r.Code != 0 || len(r.Rows) > 0 || r.RowsChecked < videos+engagements {
		t.Errorf("afterwards: %+v", r)
	}
	w.countedAsOwned(t)
}
