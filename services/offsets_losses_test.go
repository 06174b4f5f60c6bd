package services_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/services/catalog"
)

// notAsOwned are the ids of the rows of catalog that are not as their owner has them.
const notAsOwned = `
	SELECT 'video ' || video_id FROM video.videos v FULL JOIN catalog.video_projection p USING (video_id)
	 WHERE (v.version, v.last_event_id, v.deleted_at, CASE WHEN v.deleted_at IS NULL THEN v.title ELSE '' END)
	       IS DISTINCT FROM (p.version, p.last_event_id, p.deleted_at, p.title)
	 UNION ALL
	SELECT concat('engagement ', user_id, ':', video_id) FROM video.engagements e FULL JOIN catalog.video_user_engagements_projection p USING (user_id, video_id)
	 WHERE (e.version, e.last_event_id, e.deleted_at) IS DISTINCT FROM (p.version, p.last_event_id, p.deleted_at)
	    OR e.deleted_at IS NULL AND (e.liked, e.bookmarked, e.watched_seconds) IS DISTINCT FROM (p.liked, p.bookmarked, p.watched_seconds)`

// TestCatalogLosesCommits: catalog has acknowledged events, and its database is restored to
// a moment before them. By the runbook's commands, a replay or a reconciliation, each change
// is there again, once, and later ones follow.
func TestCatalogLosesCommits(t *testing.T) {
	t.Parallel()
	for _, block := range []string{"seekback", "recompare"} {
		t.Run(block, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, sharedBroker(t))
			o := w.operator(t)
			w.startVideo(t)
			stop := w.startCatalog(t)
			kept, removed := w.create(t, "kept"), w.create(t, "removed")
			users := []string{uuid.NewString(), uuid.NewString(), uuid.NewString()}
			put := func(user string, seconds int, version int64) {
				t.Helper()
				call(t, http.MethodPut, w.engagement(user, kept.ID), nil, fields{"liked": true, "watched_seconds": seconds}).is(t, http.StatusOK, version)
			}
			put(users[0], 1, 1)
			put(users[1], 2, 1)
			w.arrives(t)
			b := w.backUp(t)

			kept = w.update(t, kept, fields{"title": "kept and changed"})
			w.remove(t, removed)
			w.create(t, "made since")
			put(users[0], 10, 2)
			put(users[2], 20, 1)
			call(t, http.MethodDelete, w.engagement(users[1], kept.ID), nil, nil).is(t, http.StatusOK, 2)
			w.arrives(t)
			stop() // it acknowledges what it has committed
			w.restore(t, b, "catalog")
			if lost := query[string](t, w, notAsOwned); len(lost) != 6 {
				t.Fatalf("%d changes are lost, want 6: %v", len(lost), lost)
			}

			if block == "seekback" {
				at := o.safePosition(t)
				o.types(t, block, "TIME="+at.Format(time.RFC3339Nano), "safe position", engagementSubscription+" is at")
				w.seek(t, catalog.Subscription, at)
				w.startCatalog(t)
			} else {
				w.startCatalog(t)
				o.types(t, block, "NOTHING=", "missing 2", "behind 4", "6 repaired, 0 differ still")
			}
			w.arrives(t)
			w.countedAsOwned(t)
			w.update(t, kept, fields{"title": "kept and changed again"})
			put(users[1], 30, 3)
			w.arrives(t)
			w.countedAsOwned(t)
			if r := o.reconcile(t, ""); r.Code != 0 || len(r.Rows) > 0 {
				t.Errorf("afterwards %d rows differ: %v", len(r.Rows), r.Rows)
			}
		})
	}
}

// arrives waits until catalog has every change.
func (w *world) arrives(t *testing.T) {
	t.Helper()
	eventually(t, "catalog is as video is", func() bool { return len(query[string](t, w, notAsOwned)) == 0 })
}

// safePosition is that of `catalog offset show`.
func (o *operator) safePosition(t *testing.T) time.Time {
	t.Helper()
	var shown struct {
		Position struct {
			SafePosition time.Time `json:"safe_position"`
		} `json:"position"`
	}
	out, err := o.shell(t, "catalog offset show --json", "NOTHING=").Output()
	if err == nil {
		err = json.Unmarshal(out, &shown)
	}
	if err != nil || shown.Position.SafePosition.IsZero() {
		t.Fatalf("catalog offset show: %v: %s", err, out)
	}
	return shown.Position.SafePosition
}

// lockInbox locks the inbox rows of an aggregate until release: its events wait, and the others of
// their batch are applied without them.
func (w *world) lockInbox(t testing.TB, id string) (release func()) {
	t.Helper()
	tx := pgtest.Begin(t, w.db)
	if tag, err := tx.Exec(t.Context(), `SELECT FROM catalog.inbox WHERE aggregate_id = $1 FOR UPDATE`, id); err != nil || tag.RowsAffected() == 0 {
		t.Fatalf("%v, %v", tag, err)
	}
	release = sync.OnceFunc(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }) // a failure shows in what waits for it
	t.Cleanup(release)
	return release
}
