package services_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/history"
	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/consistency"
)

// TestTheReleaseBefore runs the services of an earlier revision of this repository and the present ones
// on one database and one broker. One instance after the other is replaced: forward, back on the
// migrated schema, and forward again after kill -9. Clients write with keys, repeat writes of all
// phases, and read with tokens of both releases. The history keeps the promises, and each instance
// works in each phase.
//
// LOCKSTEP_BEFORE is the revision, such as the tag of the release before.
func TestTheReleaseBefore(t *testing.T) {
	revision := os.Getenv("LOCKSTEP_BEFORE")
	if revision == "" {
		t.Skip("LOCKSTEP_BEFORE=REVISION builds that revision of the repository, and runs both at once")
	}
	t.Parallel()
	before := releaseAt(t, revision)
	if err := build(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, startBroker(t, broker.Local))
	w.exec(t, `DROP SCHEMA video CASCADE; DROP SCHEMA catalog CASCADE`)
	w.migrateWith(t, before)
	w.recordVersions(t)
	published := w.record(t)
	r := newRollout(t, w, before)
	r.phase(t, "the earlier release alone")
	w.migrateWith(t, binaries)
	r.phase(t, "the earlier release on the migrated schema")
	for _, i := range []int{2, 3, 0, 1} { // the reader first
		r.replace(t, i, binaries, false)
	}
	r.repeat(t)
	w.migrateWith(t, before) // as a rollback with Terraform does
	for _, i := range []int{0, 1, 2, 3} {
		r.replace(t, i, before, false)
	}
	r.repeat(t)
	for _, i := range []int{0, 2, 1, 3} {
		r.replace(t, i, binaries, true)
	}
	r.repeat(t)
	r.stop()
	r.report(t)
	r.judge(t, w)
	records := append(w.finish(t, published), r.killed...)
	t.Logf("%d writes with keys: %s", len(r.kept), history.Summarize(records))
	history.Require(t, records)
}

// releaseAt builds the services of a revision, and returns the folder of the binaries.
func releaseAt(t *testing.T, revision string) string {
	t.Helper()
	dir := t.TempDir()
	const script = `git -C .. archive "$REVISION" | tar -xf - -C "$DIR"
		cd "$DIR" && go build -buildvcs=false -o bin/ ./services/video/cmd/video ./services/catalog/cmd/catalog`
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Env = append(os.Environ(), "REVISION="+revision, "DIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v: %s", revision, err, out)
	}
	return filepath.Join(dir, "bin")
}

// migrateWith runs the command migrate of both services of a release.
func (w *world) migrateWith(t testing.TB, bin string) {
	t.Helper()
	for _, service := range []string{"video", "catalog"} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, service), "migrate")
		cmd.Env = append(os.Environ(), "DATABASE_URL="+w.pg.Admin)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s migrate: %v: %s", cmd.Path, err, out)
		}
	}
}

// repeatable is a write with a key, and its first answer.
type repeatable struct {
	path, key string
	first     answer
}

// rollout is two instances of video and then two of catalog, each of one of two releases, under load.
type rollout struct {
	*readership
	w    *world
	kept []repeatable
	// killed are the events that killed relays had not marked as published.
	killed  []history.Record
	running []*spawned
	stop    func()
}

func newRollout(t *testing.T, w *world, bin string) *rollout {
	t.Helper()
	r := &rollout{w: w}
	for i := range 4 {
		r.running = append(r.running, &spawned{addr: porttest.Addr(t)})
		r.start(t, i, bin)
	}
	r.readership = &readership{
		writes: newClient(t, r.running[0].addr, r.running[1].addr), client: newClient(t, r.running[2].addr, r.running[3].addr),
		outcomes: map[string]int{},
	}
	for _, id := range r.writes.create(t, 20) {
		r.videos = append(r.videos, answered{id: id, version: 1, token: tokenFor(id, 1)})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() { r.write(ctx, t) })
		load.Go(func() { r.read(ctx) })
	}
	r.stop = func() { cancel(); load.Wait() }
	t.Cleanup(r.stop)
	return r
}

// start starts instance i, and waits until it is ready. Each instance of catalog asks another one of video.
func (r *rollout) start(t *testing.T, i int, bin string) {
	t.Helper()
	addr := r.running[i].addr
	name, env := "video", []string{"DATABASE_URL=" + r.w.pg.VideoURL}
	if i >= 2 {
		name, env = "catalog", []string{"DATABASE_URL=" + r.w.pg.CatalogURL, "VIDEO_SERVICE_ADDR=" + r.running[i-2].addr}
	}
	r.running[i] = r.w.launch(t, exec.Command(filepath.Join(bin, name), "serve"), addr, env...)
	r.running[i].ready(t)
}

// replace ends instance i and starts it again, of the release in bin.
func (r *rollout) replace(t *testing.T, i int, bin string, kill bool) {
	t.Helper()
	p, at := r.running[i], time.Now()
	if kill {
		p.kill(t)
		r.killed = append(r.killed, orphans(t, r.w.db, at)...)
	} else if code := p.terminate(t); code != 0 {
		t.Errorf("%s ended with %d", p.cmd.Path, code)
	}
	r.start(t, i, bin)
	r.phase(t, "instance "+string('0'+rune(i))+" is "+r.running[i].cmd.Path)
}

// phase waits until some reads and writes are done, and until each instance has shown that it works: an event
// leaves also by a relay that cannot write its row, and a reader has an answer of the owner.
func (r *rollout) phase(t *testing.T, name string) {
	t.Helper()
	began := query[time.Time](t, r.w, `SELECT clock_timestamp()`)[0]
	goal, writes := r.reads.Load()+200, r.count()+40
	eventually(t, "reads and writes while "+name, func() bool { return r.reads.Load() >= goal && r.count() >= writes })
	for i, p := range r.running {
		loop := "relay"
		if i >= 2 {
			loop = "consumer"
		}
		eventually(t, p.cmd.Path+" works while "+name, func() bool { return loopState(t, p.addr, loop) == "running" })
	}
	eventually(t, "both relays have written their rows while "+name, func() bool {
		return query[int](t, r.w, `SELECT count(*) FROM video.outbox_relays WHERE seen_at > $1`, began)[0] == 2
	})
	var ids []string
	var versions []int64
	for _, v := range r.pick(len(r.videos)) {
		ids, versions = append(ids, v.id), append(versions, v.version)
	}
	eventually(t, "catalog has the writes while "+name, func() bool {
		return query[int](t, r.w, `
			SELECT count(*) FROM unnest($1::uuid[], $2::bigint[]) AS written(id, version)
			  LEFT JOIN catalog.video_projection p ON p.video_id = written.id
			 WHERE p.version IS NULL OR p.version < written.version`, ids, versions)[0] == 0
	})
	t.Logf("%6d reads, %d writes: %s", r.reads.Load(), r.count(), name)
}

func (r *rollout) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.kept)
}

// write gives random videos new titles, each with a key, until ctx ends.
func (r *rollout) write(ctx context.Context, t *testing.T) {
	for backoff.Sleep(ctx, 5*time.Millisecond, nil) {
		k := repeatable{path: "/v1/videos/" + r.pick(1)[0].id, key: uuid.NewString()}
		a, err := r.writes.do(ctx, http.MethodPatch, k.path, k.key, fields{"title": k.key})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil || a.code != http.StatusOK && a.Reason != "LOCKED" && a.Reason != "BUSY":
			t.Errorf("update of %s: %d %s, %v", k.path, a.code, a.Reason, err)
		case a.code == http.StatusOK:
			k.first = a
			r.keep(a)
			r.mu.Lock()
			r.kept = append(r.kept, k)
			r.mu.Unlock()
		}
	}
}

// repeat sends the first and the last writes again to each instance of video: the answer is the first one.
func (r *rollout) repeat(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	some := slices.Concat(r.kept[:100], r.kept[len(r.kept)-100:])
	r.mu.Unlock()
	for _, k := range some {
		for _, addr := range r.writes.addrs {
			r.again(t, addr, k)
		}
	}
}

// again repeats k at one instance.
func (r *rollout) again(t *testing.T, addr string, k repeatable) {
	t.Helper()
	repeat := func() (answer, error) {
		return r.writes.once(t.Context(), addr, http.MethodPatch, k.path, k.key, fields{"title": k.key})
	}
	a, err := repeat()
	for (a.Reason == "LOCKED" || a.Reason == "BUSY") && backoff.Sleep(t.Context(), glance, nil) {
		a, err = repeat()
	}
	got, tokenErr := consistency.Parse(a.Token)
	want, firstErr := consistency.Parse(k.first.Token) // another release may write another text
	if err := errors.Join(err, tokenErr, firstErr); err != nil || a.code != http.StatusOK || a.Title != k.key ||
		a.Version != k.first.Version || a.header.Get("Idempotency-Replayed") != "true" || !reflect.DeepEqual(got, want) {
		t.Fatalf("repeat of %s: %d %s %v (%v), want version %d, %v", k.path, a.code, a.Reason, got, err, k.first.Version, want)
	}
}
