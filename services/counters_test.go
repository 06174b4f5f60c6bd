package services_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/internal/topics"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// countedAsOwned fails the test unless each video's counters are the sums over the owner's
// engagements. The projection has reached the owner.
func (w *world) countedAsOwned(t testing.TB) {
	t.Helper()
	wrong := query[string](t, w, `
		SELECT concat_ws(' ', video_id, 'likes', o.likes, c.likes, 'bookmarks', o.bookmarks, c.bookmarks, 'seconds', o.seconds, c.seconds)
		  FROM (SELECT video_id, sum(liked::int) AS likes, sum(bookmarked::int) AS bookmarks, sum(watched_seconds) AS seconds
		          FROM video.engagements WHERE deleted_at IS NULL GROUP BY video_id) AS o
		  FULL JOIN (SELECT video_id, sum(likes) AS likes, sum(bookmarks) AS bookmarks, sum(watched_seconds) AS seconds
		          FROM catalog.video_counters GROUP BY video_id) AS c USING (video_id)
		 WHERE (coalesce(o.likes, 0), coalesce(o.bookmarks, 0), coalesce(o.seconds, 0))
		    <> (coalesce(c.likes, 0), coalesce(c.bookmarks, 0), coalesce(c.seconds, 0))`)
	if len(wrong) > 0 {
		t.Errorf("%d videos are counted otherwise than their owner's engagements (owned, counted): %v", len(wrong), wrong)
	}
	if drift := query[int64](t, w, `SELECT count(*) FROM catalog.video_counter_drift`)[0]; drift != 0 {
		t.Errorf("the view has %d videos that are counted wrong", drift)
	}
}

// TestCounters writes engagements while three instances of catalog apply them and are
// killed in turn, and some lists take the owner's state. Then the inbox forgets all events,
// and the broker delivers them once more in another order. The counters are those of the
// owner's engagements before and afterwards.
//
// LOCKSTEP_FULL=1 runs 50,000 writes and prints when each part was done; `make crash` sets it.
// With two processors that others use as well they took 270 s, and the replay 55 s.
func TestCounters(t *testing.T) {
	t.Parallel()
	writes, kills, videos := 300, 3, 5
	if os.Getenv("LOCKSTEP_FULL") != "" {
		writes, kills, videos = 50_000, 30, 50
	}
	w := newWorld(t, startBroker(t, broker.Local))
	w.spawnVideo(t, w.videoAddr).ready(t)
	fleet, addrs := make([]*spawned, 3), make([]string, 3)
	for i := range fleet {
		addrs[i] = porttest.Addr(t)
		fleet[i] = w.spawnCatalog(t, addrs[i])
		fleet[i].ready(t)
	}
	owner, readers := newClient(t, w.videoAddr), newClient(t, addrs...)
	ids, users := owner.create(t, videos), make([]string, videos)
	for i := range users {
		users[i] = uuid.NewString()
	}
	began := time.Now()
	took := func(what string) { t.Helper(); t.Logf("%s after %.1f s", what, time.Since(began).Seconds()) }
	work := make(chan struct{})
	var engaging sync.WaitGroup
	for range writers {
		engaging.Go(func() {
			for range work {
				engage(t, owner, readers, users[rand.IntN(videos)], ids[rand.IntN(videos)])
			}
		})
	}
	for n := range writes {
		work <- struct{}{}
		if period := writes / kills; n%period == 0 {
			i := n / period % len(fleet)
			fleet[i].kill(t)
			fleet[i] = w.spawnCatalog(t, addrs[i])
		}
	}
	close(work)
	engaging.Wait()
	took("written")
	for _, p := range fleet {
		p.ready(t)
	}
	took("ready")
	w.reachesTheOwner(t)
	took("applied")
	w.countedAsOwned(t)

	const state = `SELECT c::text FROM catalog.video_counters AS c ORDER BY 1`
	before := query[string](t, w, state)
	w.exec(t, `DELETE FROM catalog.inbox`)
	var events []*pubsubpb.PubsubMessage
	for _, e := range w.events(t, query[string](t, w, `SELECT concat(user_id, ':', video_id) FROM video.engagements`)...) {
		events = append(events, unordered(e))
	}
	rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	for part := range slices.Chunk(events, 500) {
		w.publishTo(t, topics.Engagement, part...)
	}
	took("published once more")
	// A video's event may come again, too: an instance that was killed has not acknowledged it.
	eventually(t, "every event is there once more", func() bool {
		return query[int](t, w, `SELECT count(*) FROM catalog.inbox WHERE status = 'done' AND aggregate_type = $1`, "engagement")[0] == len(events)
	})
	if diff := cmp.Diff(before, query[string](t, w, state)); diff != "" {
		t.Errorf("%d events once more have changed the counters (-before +after):\n%s", len(events), diff)
	}
	w.countedAsOwned(t)
}

// reachesTheOwner waits until every event is published and applied.
func (w *world) reachesTheOwner(t testing.TB) {
	t.Helper()
	eventually(t, "the outbox is empty", func() bool { return len(orphans(t, w.db, time.Time{})) == 0 })
	w.broker.expireLeases(t) // of the instances that were killed
	eventually(t, "the projection has every engagement", func() bool {
		return query[int64](t, w, `
			SELECT (SELECT count(*) FROM catalog.inbox WHERE status <> 'done')
			     + (SELECT count(*) FROM video.engagements e LEFT JOIN catalog.video_user_engagements_projection p USING (user_id, video_id)
			         WHERE p.version IS DISTINCT FROM e.version)`)[0] == 0
	})
}

// engage puts or deletes an engagement, and sometimes lists it at once, without a wait. An
// instance that does not answer has been killed.
func engage(t *testing.T, owner, readers *client, user, id string) {
	t.Helper()
	method, body := http.MethodPut, fields{"liked": rand.IntN(2) == 0, "bookmarked": rand.IntN(2) == 0, "watched_seconds": rand.IntN(100)}
	if rand.IntN(5) == 0 {
		method, body = http.MethodDelete, nil
	}
	list := "/v1/users/" + user + "/engagements"
	a, err := owner.do(t.Context(), method, list+"/"+id, uuid.NewString(), body)
	switch {
	case err != nil:
		t.Error(err)
	case method == http.MethodDelete && (a.code == http.StatusNotFound || a.code == http.StatusGone):
	case a.Reason == "BUSY": // a busy machine; nothing was changed
	case a.code != http.StatusOK:
		t.Errorf("%s %s: %d %s", method, id, a.code, a.Reason)
	case rand.IntN(5) == 0:
		header := http.Header{"Consistency-Token": {a.Token}, "Prefer": {"wait=0"}}
		seen, err := request(t.Context(), &readers.http, http.MethodGet, "http://"+readers.addrs[rand.IntN(len(readers.addrs))]+list, header, nil)
		if err == nil && seen.code != http.StatusOK && seen.code != http.StatusServiceUnavailable {
			t.Errorf("list of %s: %d %s", user, seen.code, seen.Reason)
		}
	}
}

// countedVideos is how many videos have counters.
func (w *world) countedVideos(t testing.TB) int {
	t.Helper()
	return query[int](t, w, `SELECT count(DISTINCT video_id) FROM catalog.video_counters`)[0]
}

// damageCounters damages the counters of 4 * n videos that are not in use, and returns the lines of
// found for them.
func (w *world) damageCounters(t testing.TB, n int, used []string) (want []string) {
	t.Helper()
	const counted = `SELECT video_id::text FROM catalog.video_counters WHERE video_id::text <> ALL ($1)
		GROUP BY 1 HAVING sum(watched_seconds) > 0 ORDER BY random() LIMIT $2`
	for _, damage := range []string{
		`UPDATE catalog.video_counters SET likes = likes + 7 WHERE video_id = ANY ($1::uuid[]) RETURNING video_id::text`,
		`UPDATE catalog.video_counters SET watched_seconds = watched_seconds - 1, bookmarks = bookmarks + 1 WHERE video_id = ANY ($1::uuid[]) RETURNING video_id::text`,
		`DELETE FROM catalog.video_counters WHERE video_id = ANY ($1::uuid[]) RETURNING video_id::text`,
		`INSERT INTO catalog.video_counters SELECT gen_random_uuid(), 'INSERT', 0, 1, 0 FROM unnest($1::uuid[]) RETURNING video_id::text`,
	} {
		ids := query[string](t, w, counted, used, n)
		if len(ids) != n {
			t.Fatalf("the counters of %d videos are left", len(ids))
		}
		ids = query[string](t, w, damage, ids)
		slices.Sort(ids)
		used = append(used, ids...)
		for _, id := range slices.Compact(ids) { // a video has more than one row of counters
			want = append(want, fmt.Sprintf("%s video_counters %s", reconcile.Counter, id))
		}
	}
	return want
}
