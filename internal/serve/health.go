package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"

	"example.com/lockstep/internal/rest"
)

const (
	// stalledAfter is the age of a loop's last heartbeat from which the loop counts as stalled. It is far
	// above the longest pause of a healthy loop (a backoff, or the wait for a lease to expire), because
	// the remedy for a stalled loop is a restart of the whole instance.
	stalledAfter = 5 * time.Minute
	// checkTimeout bounds all checks of one probe together. It is below the period of Cloud Run's
	// readiness probe.
	checkTimeout = 2 * time.Second
	// sayAgain is the shortest time between two log lines about one failing check. Anybody may send
	// probes, as often as they like.
	sayAgain = 10 * time.Second
)

// Check is one condition of readiness.
type Check struct {
	Name string
	// Run returns nil when the condition holds. ctx ends 2 s after the probe came, for all checks
	// together.
	Run func(ctx context.Context) error
}

// Health answers the probes. Liveness (/healthz) fails when a background loop stands still,
// because a restart may help. Readiness (/readyz) fails when a check fails or the server drains,
// because another instance should get the requests. Readiness shows the state of the loops but
// does not depend on it, because an unavailable broker must not take the API down.
type Health struct {
	log      *slog.Logger
	checks   []Check
	sayings  []rate.Sometimes // of the failures of each check
	draining atomic.Bool

	// Admin is the listener of /healthz, /readyz and /metrics. If it is nil, they are on the
	// port of the API. Set it before NewRouter.
	Admin net.Listener
	// fork: leave out
	// Page is served below /live/ on Admin, and needs Admin. If it is nil, there is no page. Set
	// it before New.
	Page http.Handler
	// fork: go on

	mu       sync.Mutex
	loops    map[string]heartbeat
	failures map[string]func() int64 // by loop
}

type heartbeat struct {
	at    time.Time
	state string
}

// NewHealth returns a Health that is ready when all checks pass.
func NewHealth(log *slog.Logger, checks ...Check) *Health {
	h := &Health{log: log, checks: checks, sayings: make([]rate.Sometimes, len(checks)),
		loops: map[string]heartbeat{}, failures: map[string]func() int64{}}
	for i := range h.sayings {
		h.sayings[i].Interval = sayAgain
	}
	return h
}

// Register expects a heartbeat of the named loop every 5 minutes from now on. The loop calls alive
// in each iteration to give the heartbeat.
func (h *Health) Register(loop string) (alive func()) {
	set := func(state string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.loops[loop] = heartbeat{at: time.Now(), state: state}
	}
	set("starting")
	return func() { set("running") }
}

// ShowFailures makes readiness show a loop as failing while inARow, which any goroutine may call, returns more
// than 0 failures. Such a loop is alive, and tries again.
func (h *Health) ShowFailures(loop string, inARow func() int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures[loop] = inARow
}

func (h *Health) drain() { h.draining.Store(true) }

func (h *Health) mount(r chi.Router) {
	r.Get("/healthz", h.live)
	r.Get("/readyz", h.ready)
	r.Method(http.MethodGet, "/metrics", promhttp.Handler())
}

type liveness struct {
	Status  string   `json:"status"`
	Stalled []string `json:"stalled,omitempty"`
}

func (h *Health) live(w http.ResponseWriter, _ *http.Request) {
	body, code := liveness{Status: "ok", Stalled: h.stalled()}, http.StatusOK
	if len(body.Stalled) > 0 {
		body.Status, code = "stalled", http.StatusServiceUnavailable
	}
	rest.WriteJSON(w, code, body)
}

func (h *Health) stalled() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var stalled []string
	for name, last := range h.loops {
		if time.Since(last.at) > stalledAfter {
			stalled = append(stalled, name)
		}
	}
	slices.Sort(stalled)
	return stalled
}

type readiness struct {
	Status string               `json:"status"`
	Checks map[string]string    `json:"checks"`
	Loops  map[string]loopState `json:"loops"`
}

// loopState is starting, running, failing, or stalled if the last heartbeat is too old.
type loopState struct {
	State            string  `json:"state"`
	SecondsSinceBeat float64 `json:"seconds_since_beat"`
	FailuresInARow   int64   `json:"failures_in_a_row,omitempty"`
}

func (h *Health) ready(w http.ResponseWriter, r *http.Request) {
	body := readiness{Status: "ready", Loops: h.loopStates()}
	code := http.StatusOK
	var passed bool
	if body.Checks, passed = h.runChecks(r.Context()); !passed {
		body.Status, code = "unready", http.StatusServiceUnavailable
	}
	if h.draining.Load() {
		body.Status, code = "draining", http.StatusServiceUnavailable
	}
	rest.WriteJSON(w, code, body)
}

// runChecks runs the checks. It logs the error of a failed check instead of returning it,
// because such errors contain host names. It logs an error of each check once in ten seconds at most.
func (h *Health) runChecks(ctx context.Context) (results map[string]string, passed bool) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	results, passed = map[string]string{}, true
	for i, check := range h.checks {
		results[check.Name] = "ok"
		if err := check.Run(ctx); err != nil {
			results[check.Name], passed = "failed", false
			h.sayings[i].Do(func() { h.log.WarnContext(ctx, "readiness check failed", "check", check.Name, "error", err) })
		}
	}
	return results, passed
}

func (h *Health) loopStates() map[string]loopState {
	h.mu.Lock()
	defer h.mu.Unlock()
	states := make(map[string]loopState, len(h.loops))
	for name, last := range h.loops {
		now := loopState{State: last.state, SecondsSinceBeat: time.Since(last.at).Seconds()}
		if inARow := h.failures[name]; inARow != nil {
			now.FailuresInARow = inARow()
		}
		switch {
		case time.Since(last.at) > stalledAfter:
			now.State = "stalled"
		case now.FailuresInARow > 0:
			now.State = "failing"
		}
		states[name] = now
	}
	return states
}

// adminServer returns the server of health, readiness and metrics. It has the same limits as the
// API's server. It does not serve gRPC health, because a gRPC client checks health on the
// connection that carries its calls, which is on the port of the API.
func (s *Server) adminServer() *http.Server {
	router := newRouter(s.log)
	s.health.mount(router)
	var handler http.Handler = router
	// fork: leave out
	if s.health.Page != nil {
		// The page bypasses the router, because the router limits how long a request takes and
		// the page's stream does not end.
		mux := http.NewServeMux()
		mux.Handle("/live/", http.StripPrefix("/live", s.health.Page))
		mux.Handle("/", router)
		handler = mux
	}
	// fork: go on
	server, _ := s.httpServer(handler)
	return server
}

// serveAdmin serves until ctx ends. It then returns and leaves the server running, so that a
// probe still gets its 503 until Run closes the server.
func serveAdmin(ctx context.Context, server *http.Server, lis net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	if err := waitOr(ctx.Done(), served); err != nil {
		return fmt.Errorf("serve health on %s: %w", lis.Addr(), err)
	}
	return nil
}
