package serve_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/internal/serve"
)

// apart gives health a listener of its own, before the router is made.
func apart(logs io.Writer, lis net.Listener) *service {
	s := newService(logs)
	s.health.Admin = lis
	s.rest = serve.NewRouter(s.log, s.health, s.guard)
	return s
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	lis := porttest.Listen(t)
	return lis
}

func TestHealthIsOnItsOwnPortOnly(t *testing.T) {
	t.Parallel()
	lis := listen(t)
	s := apart(io.Discard, lis)
	s.rest.Get("/hello", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hi") })
	api, admin := s.start(t), lis.Addr().String()
	for path, at := range map[string]map[string]int{
		"/healthz": {admin: 200, api: 404},
		"/readyz":  {admin: 200, api: 404},
		"/metrics": {admin: 200, api: 404},
		"/hello":   {admin: 404, api: 200},
	} {
		for addr, want := range at {
			res, body := get(t, client(t, false), "http://"+addr+path)
			if res.StatusCode != want || want == 404 && res.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s on the admin port %t: %d %.200s, want %d", path, addr == admin, res.StatusCode, body, want)
			}
		}
	}
	if _, body := get(t, client(t, false), "http://"+admin+"/metrics"); !strings.Contains(body, "go_goroutines") {
		t.Errorf("the metrics are not those of the process: %.200s", body)
	}
	for addr, want := range map[string]bool{api: true, admin: false} {
		res, err := grpc_health_v1.NewHealthClient(dial(t, addr)).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if got := res.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING; got != want {
			t.Errorf("gRPC health on the admin port %t: %v, %v", addr == admin, res, err)
		}
	}
}

func TestTheAdminPortAnswersUntilTheDrainHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lis := bufconn.Listen(1 << 20)
		s := apart(io.Discard, lis)
		s.rest.Get("/slow", func(http.ResponseWriter, *http.Request) { time.Sleep(5 * time.Second) })
		ctx, drain := context.WithCancel(t.Context())
		d := &drained{lis: bufconn.Listen(1 << 20), drain: drain, ended: make(chan error, 1)}
		server := s.server()
		go func() {
			d.ended <- server.Run(ctx, d.lis, func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(3 * time.Second) // the last publishes
				return nil
			})
		}()
		admin := (&drained{lis: lis}).client()
		ready := func() (int, string) {
			res, body := get(t, admin, "http://test/readyz")
			return res.StatusCode, body
		}
		if code, body := ready(); code != 200 {
			t.Errorf("before the drain: %d %s", code, body)
		}
		go func() {
			if _, err := d.client().Get("http://test/slow"); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		drain()
		for _, phase := range []string{"while lingering", "while requests end", "while loops end"} {
			time.Sleep(time.Second) // fake time
			synctest.Wait()
			if code, body := ready(); code != 503 || !strings.Contains(body, `"draining"`) {
				t.Errorf("%s: %d %s", phase, code, body)
			}
			time.Sleep(1500 * time.Millisecond)
		}
		d.wait(t)
		if _, err := admin.Get("http://test/readyz"); err == nil {
			t.Error("the admin port answers after the drain")
		}
	})
}

func TestTheAdminPortIsBounded(t *testing.T) {
	t.Parallel()
	lis := listen(t)
	apart(io.Discard, lis).start(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+lis.Addr().String()+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Long", strings.Repeat("x", 128<<10))
	res, err := client(t, false).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if body := readAll(t, res); res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 128 KiB: %d %s", res.StatusCode, body)
	}
}

func TestASlowClientOfTheAdminPortIsCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lis := bufconn.Listen(1 << 20)
		d := apart(io.Discard, lis).startInBubble(t)
		conn, err := lis.Dial()
		if err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(conn); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(started); took != 5*time.Second {
			t.Errorf("a client without a whole header had %s, want 5s", took)
		}
		d.end(t)
	})
}

func TestRunFailsWhenItCannotServeHealth(t *testing.T) {
	t.Parallel()
	lis := listen(t)
	_ = lis.Close()
	server := apart(io.Discard, lis).server()
	server.Linger = time.Nanosecond
	err := server.Run(t.Context(), listen(t))
	if !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), lis.Addr().String()) {
		t.Errorf("Run = %v, want the listener's error naming its address", err)
	}
}
