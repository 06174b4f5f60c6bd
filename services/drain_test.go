package services_test

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/pkg/eventing/backoff"
)

// drainLimit is the time that a platform gives a process between SIGTERM and SIGKILL.
const drainLimit = 10 * time.Second

// warmUp is how many answers show that a load is under way.
const warmUp = 100

// drains sends SIGTERM and fails the test unless p ends well and in time.
func (p *spawned) drains(t testing.TB) {
	t.Helper()
	started := time.Now()
	code := p.terminate(t)
	if took := time.Since(started); code != 0 || took > drainLimit {
		t.Errorf("%s ended with exit code %d after %s, want 0 within %s: %s", p.addr, code, took, drainLimit, p.child.Output())
	}
}

// handedBack fails the test if an event is still under a lease.
func (w *world) handedBack(t testing.TB) {
	t.Helper()
	left := query[string](t, w, `SELECT concat_ws(' ', aggregate_id, version, lock_token, 'leased', locked_at, 'now', now(),
		'attempts', publish_attempts, 'published', published_at, 'retry', next_retry_at) FROM video.outbox WHERE lock_token IS NOT NULL`)
	if len(left) > 0 {
		t.Errorf("leases were not handed back: %q", left)
	}
}

// TestDrainAnswersWhatItAccepts ends the only instance. Connections may be refused from
// some moment on; but every request that the instance accepted gets its answer.
func TestDrainAnswersWhatItAccepts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, startBroker(t, broker.Local))
	p := w.spawnVideo(t, w.videoAddr)
	p.ready(t)
	c := newClient(t, p.addr)
	ids := c.create(t, writers)

	var answered, closing atomic.Int64
	var mu sync.Mutex
	var unanswered []string
	var load sync.WaitGroup
	for _, id := range ids {
		load.Go(func() {
			for {
				key := uuid.NewString()
				a, err := c.once(t.Context(), p.addr, http.MethodPatch, "/v1/videos/"+id, key, fields{"title": key})
				switch {
				case err == nil && a.code == http.StatusOK:
					answered.Add(1)
					if a.closing {
						closing.Add(1)
					}
					continue
				case err == nil:
					t.Errorf("answer is %d %s", a.code, a.Reason)
				}
				mu.Lock()
				unanswered = append(unanswered, key)
				mu.Unlock()
				select {
				case <-p.child.Done():
					return
				default:
					backoff.Sleep(t.Context(), glance, nil)
				}
			}
		})
	}
	eventually(t, "the load is under way", func() bool { return answered.Load() > warmUp })
	p.drains(t)
	load.Wait()

	// Each writer met the drain in the middle of at most one request. More answers of
	// this kind mean that connections were still accepted, for clients that do not know
	// of the drain yet.
	if n := closing.Load(); n <= writers {
		t.Errorf("%d answers announced the close: the instance must go on serving for a while", n)
	}
	carriedOut := query[string](t, w, `SELECT key FROM video.idempotency_keys WHERE key = ANY($1)`, unanswered)
	if len(carriedOut) > 0 {
		t.Errorf("%d of %d requests without an answer were carried out", len(carriedOut), len(unanswered))
	}
	w.handedBack(t)
}

// TestRollingDeployFailsNoRequest replaces two instances one after the other, under
// a client that goes to the other one when a connection is refused or closed.
func TestRollingDeployFailsNoRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, startBroker(t, broker.Local))
	fleet := []*spawned{w.spawnVideo(t, porttest.Addr(t)), w.spawnVideo(t, porttest.Addr(t))}
	for _, p := range fleet {
		p.ready(t)
	}
	c := newClient(t, fleet[0].addr, fleet[1].addr)
	ids := c.create(t, writers)
	var answered atomic.Int64
	stop := c.load(t, &answered, func(n int) (string, string, fields) {
		return http.MethodPatch, "/v1/videos/" + ids[n], fields{"title": uuid.NewString()}
	})
	for i, p := range fleet {
		goal := answered.Load() + warmUp
		eventually(t, "the load is under way", func() bool { return answered.Load() > goal })
		p.drains(t)
		fleet[i] = w.spawnVideo(t, p.addr)
		fleet[i].ready(t)
	}
	stop()
	for _, p := range fleet {
		p.drains(t)
	}
	w.handedBack(t)
	// A repeated request that was executed twice would count twice.
	made := query[int64](t, w, `SELECT sum(version) - count(*) FROM video.videos`)[0]
	if made != answered.Load() {
		t.Errorf("%d updates were made, %d were answered", made, answered.Load())
	}
}

// TestCatalogDrainFailsNoRequest is the same for readers with tokens.
func TestCatalogDrainFailsNoRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, startBroker(t, broker.Local))
	w.spawnVideo(t, w.videoAddr).ready(t)
	fleet := []*spawned{w.spawnCatalog(t, porttest.Addr(t)), w.spawnCatalog(t, porttest.Addr(t))}
	for _, p := range fleet {
		p.ready(t)
	}
	v := w.create(t, "First cut")
	c := newClient(t, fleet[0].addr, fleet[1].addr)
	var answered atomic.Int64
	stop := c.load(t, &answered, func(int) (string, string, fields) {
		return http.MethodGet, "/v1/videos/" + v.ID + "?consistency_token=" + v.Token, nil
	})
	eventually(t, "the load is under way", func() bool { return answered.Load() > warmUp })
	fleet[0].drains(t)
	stop()
	fleet[1].drains(t)
}

// TestDrainEndsWaits ends a catalog while readers wait for a version that was never
// written. They get the owner's answer long before their ten seconds are over.
func TestDrainEndsWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, startBroker(t, broker.Local))
	w.spawnVideo(t, w.videoAddr).ready(t)
	p := w.spawnCatalog(t, w.catalogAddr)
	p.ready(t)
	v := w.create(t, "First cut")
	c := newClient(t, p.addr)
	const readers = 20
	answers := make(chan answer, readers)
	for range readers {
		go func() {
			header := http.Header{"Consistency-Token": {tokenFor(v.ID, 2)}, "Prefer": {"wait=10"}}
			a, err := request(t.Context(), &c.http, http.MethodGet, "http://"+p.addr+"/v1/videos/"+v.ID, header, nil)
			if err != nil {
				t.Errorf("a reader who waits gets no answer: %v", err)
			}
			answers <- a
		}()
	}
	eventually(t, "all readers wait", func() bool {
		return slices.Contains(waitersMetric.FindStringSubmatch(metrics(t, p.addr)), strconv.Itoa(readers))
	})
	p.drains(t)
	for range readers {
		if a := <-answers; a.code != http.StatusConflict {
			t.Errorf("answered %d %s, want that the owner has no such version", a.code, a.Reason)
		}
	}
}

// load makes requests until stop is called, each of which must be answered 200
// by some instance.
func (c *client) load(t testing.TB, answered *atomic.Int64, next func(n int) (method, path string, body fields)) (stop func()) {
	t.Helper()
	var stopped atomic.Bool
	var running sync.WaitGroup
	for n := range writers {
		running.Go(func() {
			for !stopped.Load() {
				method, path, body := next(n)
				a, err := c.do(t.Context(), method, path, uuid.NewString(), body)
				if err != nil || a.code != http.StatusOK {
					t.Errorf("%s: %d %s, %v", path, a.code, a.Reason, err)
					return
				}
				answered.Add(1)
			}
		})
	}
	return func() {
		stopped.Store(true)
		running.Wait()
	}
}

// TestDrainHandsBackWhatTheBrokerHolds ends an instance with hanging publishes: its
// broker accepts connections and never answers. The next relay must not have to wait
// until the lease runs out.
func TestDrainHandsBackWhatTheBrokerHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, startBroker(t, broker.Local))
	silent := porttest.Listen(t)
	defer silent.Close()
	w.broker.addr = silent.Addr().String()
	p := w.spawnVideo(t, w.videoAddr)
	p.ready(t)
	for n := range 5 {
		w.create(t, strconv.Itoa(n))
	}
	eventually(t, "the relay holds events", func() bool {
		return query[int64](t, w, `SELECT count(*) FROM video.outbox WHERE lock_token IS NOT NULL`)[0] > 0
	})
	p.drains(t)
	w.handedBack(t)
	if n := query[int64](t, w, `SELECT count(*) FROM video.outbox WHERE published_at IS NULL AND publish_attempts = 0`)[0]; n != 5 {
		t.Errorf("%d events are pending with no attempt spent, want 5", n)
	}
}
