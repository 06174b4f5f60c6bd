package serve_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/internal/serve"
)

func TestLivenessNamesALoopWithoutAHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(io.Discard)
		relay, consumer := s.health.Register("relay"), s.health.Register("consumer")
		time.Sleep(5 * time.Minute) // fake time
		if res := do(s, http.MethodGet, "/healthz", nil); res.Code != 200 {
			t.Errorf("after 5 minutes: %d %s", res.Code, res.Body)
		}
		consumer()
		time.Sleep(time.Second)
		res := do(s, http.MethodGet, "/healthz", nil)
		want := map[string]any{"status": "stalled", "stalled": []any{"relay"}}
		if diff := cmp.Diff(want, decode(t, res.Body.String())); diff != "" || res.Code != 503 {
			t.Errorf("a second later: %d, body (-want +got):\n%s", res.Code, diff)
		}
		if res := do(s, http.MethodGet, "/readyz", nil); res.Code != 200 || !strings.Contains(res.Body.String(), `"relay":{"state":"stalled"`) {
			t.Errorf("a stalled loop: %d %s", res.Code, res.Body)
		}
		relay()
		if res := do(s, http.MethodGet, "/healthz", nil); res.Code != 200 {
			t.Errorf("after a heartbeat: %d %s", res.Code, res.Body)
		}
	})
}

func TestReadinessShowsChecksAndLoops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("dial db.internal: refused")
		var poolErr error
		var logs lockedBuffer
		s := newService(&logs,
			serve.Check{Name: "migrated", Run: func(context.Context) error { return nil }},
			serve.Check{Name: "pool", Run: func(context.Context) error { return poolErr }})
		s.health.Register("relay")()
		s.health.Register("consumer")
		var failures int64
		s.health.ShowFailures("relay", func() int64 { return failures })
		time.Sleep(3 * time.Second) // fake time

		loops := map[string]any{
			"relay":    map[string]any{"state": "running", "seconds_since_beat": 3.0},
			"consumer": map[string]any{"state": "starting", "seconds_since_beat": 3.0},
		}
		res := do(s, http.MethodGet, "/readyz", nil)
		want := map[string]any{"status": "ready", "checks": map[string]any{"migrated": "ok", "pool": "ok"}, "loops": loops}
		if diff := cmp.Diff(want, decode(t, res.Body.String())); diff != "" || res.Code != 200 {
			t.Errorf("ready: %d, body (-want +got):\n%s", res.Code, diff)
		}
		failures = 2
		loops["relay"] = map[string]any{"state": "failing", "seconds_since_beat": 3.0, "failures_in_a_row": 2.0}
		poolErr = broken
		res = do(s, http.MethodGet, "/readyz", nil)
		want = map[string]any{"status": "unready", "checks": map[string]any{"migrated": "ok", "pool": "failed"}, "loops": loops}
		if diff := cmp.Diff(want, decode(t, res.Body.String())); diff != "" || res.Code != 503 {
			t.Errorf("unready: %d, body (-want +got):\n%s", res.Code, diff)
		}
		if !strings.Contains(logs.String(), broken.Error()) {
			t.Errorf("the log lacks the reason:\n%s", logs.String())
		}
	})
}

// Anybody may ask for readiness, and as often as they like.
func TestAFailedCheckIsFewLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logs lockedBuffer
		failed := func(context.Context) error { return errors.New("refused") }
		s := newService(&logs, serve.Check{Name: "migrated", Run: failed}, serve.Check{Name: "pool", Run: failed})
		for range 100 {
			do(s, http.MethodGet, "/readyz", nil)
			time.Sleep(150 * time.Millisecond) // fake time, 15 s in all
		}
		if n := strings.Count(logs.String(), "readiness check failed"); n != 4 {
			t.Errorf("%d lines in 15 s, want two of each check", n)
		}
	})
}

func TestAReadinessCheckGetsTwoSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(io.Discard, serve.Check{Name: "pool", Run: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		started := time.Now()
		if res := do(s, http.MethodGet, "/readyz", nil); res.Code != 503 {
			t.Errorf("a check that hangs: %d %s", res.Code, res.Body)
		}
		if took := time.Since(started); took != 2*time.Second {
			t.Errorf("the check was given %s, want 2s", took)
		}
	})
}

func TestMetricsAreServed(t *testing.T) {
	t.Parallel()
	if res := do(newService(io.Discard), http.MethodGet, "/metrics", nil); res.Code != 200 || !strings.Contains(res.Body.String(), "go_goroutines") {
		t.Errorf("/metrics: %d", res.Code)
	}
}

// A loop may be registered while a probe reads the states (to be run with the race detector).
func TestFailuresAreShownWhileAProbeReads(t *testing.T) {
	t.Parallel()
	var logs lockedBuffer
	s := newService(&logs)
	s.health.Register("relay")
	var both sync.WaitGroup
	both.Go(func() {
		for range 100 {
			s.health.ShowFailures("relay", func() int64 { return 1 })
		}
	})
	for range 100 {
		do(s, http.MethodGet, "/readyz", nil)
	}
	both.Wait()
	if res := do(s, http.MethodGet, "/readyz", nil); !strings.Contains(res.Body.String(), `"failing"`) {
		t.Errorf("the loop does not fail: %s", res.Body.String())
	}
}
