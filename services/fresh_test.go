package services_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/history"
	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/session"
)

// answered is the newest write of a video that its writer had an answer to.
type answered struct {
	id, token string
	version   int64
}

// readership reads the writers' videos, with their tokens, and keeps a record of the
// answers.
type readership struct {
	client *client
	writes *client

	mu       sync.Mutex
	videos   []answered
	outcomes map[string]int
	// records are of the answers to writers and to readers.
	records []history.Record

	reads atomic.Int64
}

// TestFreshReads writes and reads with tokens through two instances of catalog, while
// their consumer is held up, the broker restarts and loses its messages, the database
// ends all sessions, and each instance is killed. No read is older than its token,
// except where the reader allows that and the answer says so.
//
// LOCKSTEP_FULL=1 runs the full measure, more than 100,000 reads; `make fresh` sets it.
func TestFreshReads(t *testing.T) {
	t.Parallel()
	rounds, calm, disturbed, readers := 1, int64(400), int64(40), 12
	if os.Getenv("LOCKSTEP_FULL") != "" {
		rounds, calm, disturbed, readers = 2, 8_500, 1_500, 48
	}
	w := newWorld(t, startBroker(t, broker.Local))
	w.recordVersions(t)
	w.spawnVideo(t, w.videoAddr).ready(t)
	fleet := []*spawned{w.spawnCatalog(t, porttest.Addr(t)), w.spawnCatalog(t, porttest.Addr(t))}
	for _, p := range fleet {
		p.ready(t)
	}
	r := &readership{client: newClient(t, fleet[0].addr, fleet[1].addr), writes: newClient(t, w.videoAddr), outcomes: map[string]int{}}
	for _, id := range r.writes.create(t, 20) {
		r.videos = append(r.videos, answered{id: id, version: 1, token: tokenFor(id, 1)})
	}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for range 3 {
		load.Go(func() { r.write(ctx, t) })
	}
	for range readers {
		load.Go(func() { r.read(ctx) })
	}
	restart := func(i int) {
		fleet[i].kill(t)
		fleet[i] = w.spawnCatalog(t, fleet[i].addr)
	}
	disturbances := []struct {
		name  string
		begin func() (end func())
	}{
		{"the consumer is held up", func() func() { return w.hold(t, "catalog.inbox") }},
		{"one instance is killed", func() func() { restart(0); return func() { fleet[0].ready(t) } }},
		{"the broker is away, and forgets", func() func() { w.broker.stop(); return func() { w.broker.comeBack(t, w.project) } }},
		{"the database ends all sessions", func() func() { w.pg.Terminate(t); return func() {} }},
		{"the other instance is killed", func() func() { restart(1); return func() { fleet[1].ready(t) } }},
	}
	started := time.Now()
	phase := func(name string, reads int64) {
		goal := r.reads.Load() + reads
		eventually(t, "the reads are done while "+name, func() bool { return r.reads.Load() >= goal })
		t.Logf("%8s  %6d reads, %s", time.Since(started).Round(time.Millisecond), r.reads.Load(), name)
	}
	for range rounds {
		for _, d := range disturbances {
			phase("all is well", calm)
			end := d.begin()
			phase(d.name, disturbed)
			end()
		}
	}
	phase("all is well again", calm)
	stop()
	load.Wait()
	r.report(t)
	r.judge(t, w)
	for _, p := range fleet {
		t.Logf("counted by %s since its last start:%s", p.addr, readCounts(t, p.addr))
	}
}

// write gives random videos new titles, one at a time, until ctx ends.
func (r *readership) write(ctx context.Context, t *testing.T) {
	for backoff.Sleep(ctx, 2*time.Millisecond, nil) {
		id := r.pick(1)[0].id
		a, err := r.writes.do(ctx, http.MethodPatch, "/v1/videos/"+id, uuid.NewString(), fields{"title": uuid.NewString()})
		if ctx.Err() != nil {
			return
		}
		if err != nil || a.code != http.StatusOK {
			// The database may just have ended this session.
			if a.code != http.StatusServiceUnavailable && a.code != http.StatusInternalServerError {
				t.Errorf("update of %s: %d %s, %v", id, a.code, a.Reason, err)
			}
			continue
		}
		r.keep(a)
	}
}

// keep records a writer's answer.
func (r *readership) keep(a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, answerOf(a))
	for i, v := range r.videos {
		if v.id == a.ID && v.version < a.Version {
			r.videos[i] = answered{id: a.ID, token: a.Token, version: a.Version}
		}
	}
}

// answerOf is a writer's answer in the form of a history record.
func answerOf(a answer) history.Record {
	return history.Record{
		Kind: history.Answer, At: time.Now(), Aggregate: a.ID, Epoch: eventing.FirstEpoch, Version: a.Version, Token: a.Token,
	}
}

// judge writes each video once more, because the broker has lost events that no later
// event has revealed yet, and checks the whole history against the promises.
func (r *readership) judge(t *testing.T, w *world) {
	t.Helper()
	for _, v := range r.pick(len(r.videos)) {
		a, err := r.writes.do(t.Context(), http.MethodPatch, "/v1/videos/"+v.id, uuid.NewString(), fields{"title": "the last"})
		if err != nil || a.code != http.StatusOK {
			t.Fatalf("update of %s: %d %s, %v", v.id, a.code, a.Reason, err)
		}
		r.keep(a)
	}
	eventually(t, "the outbox is empty", func() bool { return len(orphans(t, w.db, time.Time{})) == 0 })
	w.broker.expireLeases(t)
	await(t.Context(), func() bool { // cheap; the check of the history takes the processors from the services
		return query[int64](t, w, `
			SELECT (SELECT count(*) FROM catalog.inbox WHERE status <> 'done')
			     + (SELECT count(*) FROM video.videos v LEFT JOIN catalog.video_projection p USING (video_id)
			         WHERE p.version IS DISTINCT FROM v.version)`)[0] == 0
	})
	past := slices.Concat(r.records, written(t, w.db), marked(t, w.db), owned(t, w.db))
	var all []history.Record
	await(t.Context(), func() bool {
		all = slices.Concat(past, w.delivered(t), w.applied(t), w.copied(t))
		return len(history.Check(all)) == 0
	})
	history.Require(t, all)
}

// pick returns n different videos with their newest tokens.
func (r *readership) pick(n int) []answered {
	r.mu.Lock()
	defer r.mu.Unlock()
	picked := make([]answered, n)
	for i, at := range rand.Perm(len(r.videos))[:n] {
		picked[i] = r.videos[at]
	}
	return picked
}

// read reads at random instances until ctx ends. An instance that gives no answer has
// been killed; the loop then goes on with another.
func (r *readership) read(ctx context.Context) {
	modes := []string{"", "", "", "", "", "", "at-least-as-fresh;stale-if-error", "minimize-latency", "fully-consistent"}
	for ctx.Err() == nil {
		addr, mode := r.client.addrs[rand.IntN(len(r.client.addrs))], modes[rand.IntN(len(modes))]
		list := rand.IntN(5) == 0 && mode != "fully-consistent"
		wanted, path := r.pick(1+rand.IntN(3)), "/v1/videos"
		what := "list"
		if !list {
			path, what = "/v1/videos/"+wanted[0].id, "get"
		}
		header := http.Header{"Prefer": {"wait=" + strconv.Itoa(rand.IntN(2))}}
		if mode != "" {
			header.Set("Consistency", mode)
			what += ", " + mode
		}
		a, err := request(ctx, &r.client.http, http.MethodGet, "http://"+addr+path+"?consistency_token="+url.QueryEscape(demandOf(wanted)), header, nil)
		if err != nil {
			backoff.Sleep(ctx, glance, nil)
			continue
		}
		if !list {
			a.Videos, wanted = []answer{a}, wanted[:1]
		}
		r.enter(what, mode, wanted, a)
	}
}

// demandOf is one token with the positions of all of these.
func demandOf(wanted []answered) string {
	var all session.Session
	for _, v := range wanted {
		if err := all.Keep(v.token); err != nil {
			return err.Error() // catalog will refuse it
		}
	}
	return all.Token()
}

// enter records an answer: for each video that was wanted, the version that the answer
// shows.
func (r *readership) enter(what, mode string, wanted []answered, a answer) {
	shown, lags := map[string]int64{}, map[string]bool{}
	for _, v := range a.Videos {
		shown[v.ID] = v.Version
	}
	for _, l := range a.Stale {
		lags[l.ID] = true
	}
	summary := a.Source
	if a.code != http.StatusOK {
		summary = fmt.Sprintf("%d %s", a.code, a.Reason)
	}
	if len(lags) > 0 {
		summary += ", stale and says so"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes[what+": "+summary]++
	r.reads.Add(1)
	for _, v := range wanted {
		read := history.Record{
			Kind: history.Read, At: time.Now(), Aggregate: v.id, Epoch: eventing.FirstEpoch, Version: shown[v.id],
			Token: v.token, Least: v.version, Mode: mode, Outcome: outcomeOf(a), Note: summary,
		}
		if lags[v.id] {
			read.Outcome = history.Stale
		}
		r.records = append(r.records, read)
	}
}

// outcomeOf is the meaning of an answer for its reader. A refusal says when to come
// again.
func outcomeOf(a answer) history.Outcome {
	refused := a.code == http.StatusServiceUnavailable || a.code == http.StatusTooManyRequests
	switch {
	case a.code == http.StatusOK:
		return history.Shown
	case refused && a.header.Get("Retry-After") != "":
		return history.Unavailable
	case a.code == http.StatusNotFound && a.AtLeast > 0:
		return history.Absent
	}
	return history.Unexpected
}

func (r *readership) report(t *testing.T) {
	t.Helper()
	t.Logf("%d reads with tokens", r.reads.Load())
	for _, outcome := range slices.Sorted(maps.Keys(r.outcomes)) {
		t.Logf("%8d  %s", r.outcomes[outcome], outcome)
	}
}

var (
	readsMetric   = regexp.MustCompile(`(?m)^consistency_reads_total\{.*outcome="(\w+)".*\} (\d+)$`)
	waitersMetric = regexp.MustCompile(`(?m)^consistency_waiters\{.*\} (\d+)$`)
)

// readCounts returns an instance's metrics of its reads.
func readCounts(t testing.TB, addr string) (counts string) {
	t.Helper()
	for _, m := range readsMetric.FindAllStringSubmatch(metrics(t, addr), -1) {
		counts += fmt.Sprintf(" %s %s", m[1], m[2])
	}
	return counts
}

// metrics returns an instance's metrics.
func metrics(t testing.TB, addr string) string {
	t.Helper()
	res, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
