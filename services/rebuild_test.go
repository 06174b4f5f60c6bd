package services_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/pgtest"
)

// traffic is clients that write and, with the token of the answer, read.
type traffic struct {
	writes, reads atomic.Int64
	began         time.Time
	stop          func()
}

// startTraffic writes so many times a second, to videos and to engagements with them. Each
// write is followed by a read of it. No answer may be an error, or older than its token.
func (w *world) startTraffic(t *testing.T, perSecond int, ids []string) *traffic {
	t.Helper()
	load := &traffic{began: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	feed := make(chan string)
	var running sync.WaitGroup
	running.Go(func() {
		defer close(feed)
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				feed <- ids[rand.IntN(len(ids))]
			}
		}
	})
	owner, readers := newClient(t, w.videoAddr), newClient(t, w.catalogAddr)
	for range writers {
		running.Go(func() {
			for id := range feed {
				if err := load.writeAndRead(t.Context(), owner, readers, id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	load.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(load.stop)
	return load
}

func (l *traffic) writeAndRead(ctx context.Context, owner, readers *client, id string) error {
	method, path, body, code := http.MethodPatch, "/v1/videos/"+id, fields{"title": uuid.NewString()}, http.StatusOK
	read := path
	if rand.IntN(2) == 0 {
		user := "00000000-0000-4000-9000-00000000000" + fmt.Sprint(rand.IntN(9))
		method, path, body = http.MethodPut, "/v1/users/"+user+"/engagements/"+id, fields{"liked": rand.IntN(2) == 0, "watched_seconds": rand.IntN(100)}
		read = "/v1/users/" + user + "/engagements"
	}
	written, err := owner.do(ctx, method, path, uuid.NewString(), body)
	if err != nil || written.code != code {
		return fmt.Errorf("%s %s: %d %s, %w", method, path, written.code, written.Reason, err)
	}
	l.writes.Add(1)
	header := http.Header{"Consistency-Token": {written.Token}, "Prefer": {"wait=20"}}
	seen, err := request(ctx, &readers.http, http.MethodGet, "http://"+readers.addrs[0]+read, header, nil)
	switch {
	case err != nil || seen.code != http.StatusOK:
		return fmt.Errorf("read %s: %d %s, %w", read, seen.code, seen.Reason, err)
	case method == http.MethodPatch && seen.Version < written.Version:
		return fmt.Errorf("read %s: version %d, and its token is of %d", read, seen.Version, written.Version)
	case method == http.MethodPut && !strings.Contains(fmt.Sprint(seen.Engagements), id):
		return fmt.Errorf("read %s: %s is not there", read, id)
	}
	l.reads.Add(1)
	return nil
}

// rebuildState is the rebuild's state as its command tells it.
type rebuildState struct {
	Phase         string `json:"phase"`
	AggregateType string `json:"aggregate_type"`
	Rows          int64  `json:"rows"`
	ShadowBytes   int64  `json:"shadow_bytes"`
}

func (o *operator) rebuildState(t *testing.T) rebuildState {
	t.Helper()
	var result struct{ State rebuildState }
	out, err := o.shell(t, "catalog rebuild status --json", "NOTHING=").Output()
	if err != nil || json.Unmarshal(out, &result) != nil {
		t.Fatalf("status: %v %s", err, out)
	}
	return result.State
}

// killRebuild runs the rebuild, slowly, until a condition holds, and kills it.
func (o *operator) killRebuild(t *testing.T, until, condition string) {
	t.Helper()
	run := o.shell(t, `exec catalog rebuild run --disk-free "40 GB" --rate 200 --yes --why test`, "NOTHING=")
	var said strings.Builder
	run.Stderr = &said
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the rebuild is "+until+": "+said.String(), func() bool {
		if query[bool](t, o.world, `SELECT to_regclass('catalog.rebuild_state') IS NOT NULL`)[0] {
			return query[bool](t, o.world, `SELECT `+condition+` FROM catalog.rebuild_state`)[0]
		}
		return false
	})
	_ = run.Process.Kill()
	if err := run.Wait(); err == nil || run.ProcessState.ExitCode() != -1 {
		t.Fatalf("%s: the rebuild ended before it was killed: %v %s", until, err, said.String())
	}
	t.Logf("killed %s: %+v", until, o.rebuildState(t))
}

// TestRebuild rebuilds a damaged read model while clients write, and read with tokens. Its
// process is killed at five points, and goes on; the tables are exchanged and exchanged back.
// No request fails, and no read is older than its token.
//
// LOCKSTEP_FULL=1 writes 200 times a second, or as often as the machine can.
func TestRebuild(t *testing.T) {
	t.Parallel()
	perSecond := 40
	if os.Getenv("LOCKSTEP_FULL") != "" {
		perSecond = 200
	}
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	w.startVideo(t)
	w.startCatalog(t)
	w.seed(t, 6000, 3000)
	ids := newClient(t, w.videoAddr).create(t, 40)
	before := w.oids(t)
	w.damage(t, 10, ids...)
	load := w.startTraffic(t, perSecond, ids)

	out, err := o.shell(t, `catalog rebuild run --disk-free "1 MB" --yes --why test`, "NOTHING=").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "too little free disk") {
		t.Errorf("with too small a disk: %v %s", err, out)
	}
	o.types(t, "rebuild-begin", "FREE=40 GB", "There is no rebuild", "A rebuild needs", "Nothing was changed")
	o.killRebuild(t, "after its begin", "true")
	o.killRebuild(t, "in the middle of filling", "rows > 2000")
	o.killRebuild(t, "filling the second table", "aggregate_type = 'engagement'")
	o.killRebuild(t, "while it compares", "phase = 'comparing'")
	// It stays in the phase after the exchange until the lock of a recount is free.
	hold := pgtest.Begin(t, w.db)
	pgtest.Exec(t, hold, `SELECT pg_advisory_xact_lock(hashtext('lockstep recount videos'))`)
	o.killRebuild(t, "right after the exchange", "phase = 'checking'")
	pgtest.End(t, hold.Rollback)
	if after := w.oids(t); after == before {
		t.Error("the tables are those of before")
	}
	o.types(t, "rebuild", "NOTHING=", "goes on from there", "The new copy is served", "phase", "done")
	w.asOwned(t, o, load)

	o.types(t, "rebuild-back", "NOTHING=", "The copy of before is served")
	if after := w.oids(t); after != before {
		t.Error("after the rollback the tables are not those of before")
	}
	load = w.startTraffic(t, perSecond, ids)
	o.types(t, "rebuild-finish", "NOTHING=", "is removed", "The rebuild is finished")
	if left := query[string](t, w, `SELECT relname FROM pg_class WHERE relnamespace = 'catalog'::regnamespace AND (relname LIKE '%rebuild%' OR relname LIKE '%shadow%')`); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
	// The copy of before has been repaired where the new one was, by the mirror.
	o.reconcile(t, "--repair --yes --why test --grace 60s")
	w.asOwned(t, o, load)
}

// asOwned ends the traffic, and compares both services when they are at rest.
func (w *world) asOwned(t *testing.T, o *operator, load *traffic) {
	t.Helper()
	load.stop()
	perSecond := float64(load.writes.Load()) / time.Since(load.began).Seconds()
	t.Logf("%d writes, %.0f a second, and %d reads with their tokens", load.writes.Load(), perSecond, load.reads.Load())
	if r := o.reconcile(t, "--grace 60s"); r.Code != 0 || len(r.Rows) > 0 {
		t.Errorf("at rest: %+v", r)
	}
	w.countedAsOwned(t)
	if load.reads.Load() != load.writes.Load() {
		t.Errorf("%d reads of %d writes", load.reads.Load(), load.writes.Load())
	}
}

// oids identifies the tables that are served.
func (w *world) oids(t *testing.T) string {
	t.Helper()
	var oids []string
	for _, r := range replicas {
		oids = append(oids, query[string](t, w, `SELECT $1::text::regclass::oid::text`, r.name)...)
	}
	return strings.Join(oids, " ")
}

// TestRebuildAMillionRows prints the time and the bytes of a rebuild of a million rows.
func TestRebuildAMillionRows(t *testing.T) {
	t.Parallel()
	if os.Getenv("LOCKSTEP_FULL") == "" {
		t.Skip("takes minutes: LOCKSTEP_FULL=1")
	}
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	w.spawnVideo(t, w.videoAddr).ready(t)
	w.seed(t, 600_000, 400_000)
	ids := newClient(t, w.videoAddr).create(t, 40)
	w.startCatalog(t)
	load := w.startTraffic(t, 200, ids)
	size := func() (bytes int64) {
		for _, r := range replicas {
			bytes += query[int64](t, w, `SELECT pg_total_relation_size($1::text::regclass)`, r.name)[0]
		}
		return bytes
	}
	wal := query[string](t, w, `SELECT pg_current_wal_lsn()::text`)[0]
	served, began := size(), time.Now()
	cmd := o.shell(t, `exec catalog rebuild run --disk-free "40 GB" --rate 0 --yes --why test --json`, "NOTHING=")
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("%v: %s", err, failed.Stderr)
	}
	took := time.Since(began)
	logged := query[int64](t, w, `SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), $1::text::pg_lsn)::bigint`, wal)[0]
	load.stop()
	s := o.rebuildState(t)
	t.Logf("1,000,000 rows in %.0f s: tables of %.0f MB, the new ones %.0f MB, %.0f MB of log; %d writes and %d reads meanwhile; %s",
		took.Seconds(), float64(served)/1e6, float64(size())/1e6, float64(logged)/1e6, load.writes.Load(), load.reads.Load(), out)
	if s.Phase != "done" {
		t.Errorf("%+v", s)
	}
	w.asOwned(t, o, load)
}
