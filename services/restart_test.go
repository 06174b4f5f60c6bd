package services_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/porttest"
)

// videoRestarts: events that were committed while no relay could send them leave later.
// Meanwhile no reader that demands them gets an older state.
func videoRestarts(t *testing.T, w *world) {
	stop := w.startVideo(t)
	w.startCatalog(t)
	first := w.create(t, "First cut")
	w.reaches(t, first)
	stop()

	elsewhere := porttest.Addr(t)
	stopElsewhere := w.serveVideo(t, elsewhere, "nowhere")
	second := call(t, http.MethodPatch, "http://"+elsewhere+"/v1/videos/"+first.ID, nil, fields{"title": "Second cut"})
	second.is(t, http.StatusOK, 2)
	w.read(t, first.ID, first.Token, 0).is(t, http.StatusOK, 1).from(t, "projection")
	if a := w.read(t, first.ID, second.Token, 0); a.code != http.StatusServiceUnavailable || a.Reason != "NOT_FRESH_ENOUGH" {
		t.Errorf("answer is %d %s, want 503 NOT_FRESH_ENOUGH: catalog can reach version 2 nowhere", a.code, a.Reason)
	}
	stopElsewhere()

	w.startVideo(t)
	w.reaches(t, second)
	w.livedExactly(t, first.ID, 1, 2)
}

// catalogRestarts: catalog goes on after its last event, and neither misses nor repeats
// one.
func catalogRestarts(t *testing.T, w *world) {
	w.startVideo(t)
	stop := w.startCatalog(t)
	v := w.create(t, "1")
	w.reaches(t, v)
	stop()

	v = w.update(t, v, fields{"title": "2"})
	v = w.update(t, v, fields{"title": "3"})
	w.startCatalog(t)
	w.reaches(t, v)
	w.livedForward(t, v.ID, 3) // both may come in one batch, and then move it once
}

// databaseFailsOver ends every session of both services again and again while a client
// writes. The client tries again with its key. The relay and the consumer wait, and
// count the failure against no event.
func databaseFailsOver(t *testing.T, w *world) {
	const updates, failovers = 40, 4
	w.startVideo(t)
	w.startCatalog(t)
	v := w.create(t, "0")
	for n := range updates {
		if n%(updates/failovers) == 0 {
			w.pg.Terminate(t)
			w.db.Reset() // the test's own sessions went, too
		}
		key := http.Header{"Idempotency-Key": {uuid.NewString()}}
		eventually(t, "the write is answered", func() bool {
			a := call(t, http.MethodPatch, w.videos("/"+v.ID), key, fields{"duration_seconds": n + 1})
			if a.code >= http.StatusInternalServerError {
				return false
			}
			v = a.is(t, http.StatusOK, v.Version+1)
			return true
		})
	}
	w.reaches(t, v)
	w.livedForward(t, v.ID, v.Version)
	attempts := query[int64](t, w, `
		SELECT (SELECT sum(publish_attempts) FROM video.outbox) + (SELECT sum(attempts) FROM catalog.inbox)`)
	if attempts[0] != 0 {
		t.Errorf("the failovers spent %d attempts", attempts[0])
	}
}

// TestBrokerRestarts deletes all data of the broker. The services go on serving while
// it is down, and catch up by themselves when it is back.
func TestBrokerRestarts(t *testing.T) {
	t.Parallel()
	onEachKind(t, func(t *testing.T, kind broker.Kind) {
		t.Parallel()
		b := startBroker(t, kind)
		w := newWorld(t, b)
		w.recordVersions(t)
		owner, copies := w.spawnVideo(t, w.videoAddr), w.spawnCatalog(t, w.catalogAddr)
		owner.ready(t)
		copies.ready(t)
		v := w.create(t, "1")
		w.reaches(t, v)

		b.stop()
		v = w.update(t, v, fields{"title": "2"})
		w.ofOwner(t, v.ID, v.Token).is(t, http.StatusOK, 2)
		if !ready(owner.addr) || !ready(copies.addr) {
			t.Error("without the broker a service is not ready")
		}
		for addr, loop := range map[string]string{owner.addr: "relay", copies.addr: "consumer"} {
			eventually(t, "/readyz shows the "+loop+" as failing", func() bool { return loopState(t, addr, loop) == "failing" })
		}

		b.comeBack(t, w.project)
		w.reaches(t, v)
		v = w.update(t, v, fields{"title": "3"})
		w.reaches(t, v)
		for addr, loop := range map[string]string{owner.addr: "relay", copies.addr: "consumer"} {
			eventually(t, "/readyz shows the "+loop+" as running", func() bool { return loopState(t, addr, loop) == "running" })
		}
		w.livedExactly(t, v.ID, 1, 2, 3)
	})
}

// loopState is the state of a background loop in the body of /readyz.
func loopState(t testing.TB, addr, loop string) string {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body struct {
		Loops map[string]struct {
			State string `json:"state"`
		} `json:"loops"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	return body.Loops[loop].State
}

// TestCatalogIsKilled kills catalog with messages in hand and a transaction open.
// Nothing of that had an effect yet. All messages come again and have their effect
// once.
func TestCatalogIsKilled(t *testing.T) {
	t.Parallel()
	onEachKind(t, func(t *testing.T, kind broker.Kind) {
		t.Parallel()
		if kind == broker.Official {
			t.Skip("the emulator never notices that a subscriber died, and keeps its messages for it for ever")
		}
		w := newWorld(t, startBroker(t, kind))
		w.recordVersions(t)
		w.spawnVideo(t, w.videoAddr).ready(t)
		copies := w.spawnCatalog(t, w.catalogAddr)
		copies.ready(t)
		videos := make([]answer, 5)
		for i := range videos {
			videos[i] = w.create(t, "First cut")
			w.reaches(t, videos[i])
		}

		release := w.block(t)
		// By the last of these updates the client has reported to the broker the
		// messages that it holds; these then come again after 10 s instead of a minute.
		for range 30 {
			for i, v := range videos {
				videos[i] = w.update(t, v, fields{"duration_seconds": v.Version})
			}
		}
		copies.kill(t)
		release()
		w.spawnCatalog(t, w.catalogAddr).ready(t)
		for _, v := range videos {
			w.reaches(t, v)
			w.livedForward(t, v.ID, v.Version)
			eventually(t, "every event is settled", func() bool { return w.inbox(t, v.ID, "done") == v.Version })
		}
	})
}

// block keeps the projection unchanged, with catalog's next transaction waiting, until
// release is called.
func (w *world) block(t testing.TB) (release func()) {
	t.Helper()
	return w.hold(t, "catalog.video_projection")
}

// hold blocks all writes to a table until release is called.
func (w *world) hold(t testing.TB, table string) (release func()) {
	t.Helper()
	tx := pgtest.Begin(t, w.db)
	pgtest.Exec(t, tx, `LOCK TABLE `+table+` IN SHARE MODE`)
	return func() {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
