package serve_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/authtest"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/serve"
)

// guarded is a service with an authenticator, and the operations of the tests below: a route
// and a method for users. They answer with the scope of their caller.
func guarded(callers *auth.Authenticator) *service { return guardedWith(callers, io.Discard) }

func guardedWith(callers *auth.Authenticator, logs io.Writer) *service {
	return limited(callers, logs, serve.Options{})
}

func limited(callers *auth.Authenticator, logs io.Writer, limits serve.Options) *service {
	s := newService(logs)
	s.guard = serve.NewGuard(s.rules, callers, limits)
	s.rest, s.grpc = serve.NewRouter(s.log, s.health, s.guard), serve.NewGRPC(s.log, s.guard)
	s.rules["GET /v1/videos/{id}"], s.rules["/test.Echo/Say"] = auth.Users, auth.Users
	s.rest.Get("/v1/videos/{id}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, auth.Of(r.Context()).Scope())
	})
	echo(func(ctx context.Context, _ string) (string, error) { return auth.Of(ctx).Scope(), nil }).register(s.grpc)
	return s
}

// closed is an authenticator that has no issuer to ask, for requests without a token.
func closed(t *testing.T, local bool, services ...string) *auth.Authenticator {
	t.Helper()
	callers, err := auth.New(t.Context(), auth.Config{
		Issuer: "https://issuer.example", Audience: "a", Local: local,
		Services: services, ServiceIssuer: "https://issuer.example", ServiceAudience: "b",
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return callers
}

// A route or a method without a rule, or a rule without its operation, ends Run before it
// serves.
func TestNothingIsServedWithoutARule(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare func(*service)
		names   string
	}{
		"route":  {func(s *service) { s.rest.Get("/v1/new", http.NotFound) }, "GET /v1/new has no rule"},
		"method": {func(s *service) { echo(nil).register(s.grpc) }, "/test.Echo/Say has no rule"},
		"rule":   {func(s *service) { s.rules["GET /v1/old"] = auth.Users }, "GET /v1/old has a rule and is not registered"},
	} {
		s := newService(io.Discard)
		server := s.server() // before the operation is there
		tc.prepare(s)
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		err = server.Run(ctx, lis, func(context.Context) error {
			t.Errorf("%s: a loop began", name)
			stop()
			return nil
		})
		stop()
		if err == nil || !strings.Contains(err.Error(), tc.names) {
			t.Errorf("%s: %v, want %q", name, err, tc.names)
		}
		if _, err := lis.Accept(); err == nil {
			t.Errorf("%s: the listener is open", name)
		}
	}
}

// The two protocols admit and refuse alike, and give handlers the same caller.
func TestBothProtocolsHaveOneGuard(t *testing.T) {
	t.Parallel()
	issuers := authtest.New(t)
	addr := guarded(issuers.Callers).start(t)
	conn := dial(t, addr)
	for name, want := range map[string]struct {
		status    int
		code      codes.Code
		reason    string
		challenge string
		body      string
	}{
		"":        {401, codes.Unauthenticated, "UNAUTHENTICATED", "Bearer", ""},
		"bad":     {401, codes.Unauthenticated, "UNAUTHENTICATED", `Bearer error="invalid_token"`, ""},
		"service": {403, codes.PermissionDenied, "PERMISSION_DENIED", "", ""},
		"owner":   {200, codes.OK, "", "", "user:" + authtest.Owner.String()},
	} {
		header := map[string]http.Header{"": {}, "bad": {"Authorization": {"Basic eDp5"}}}[name]
		if header == nil {
			header = issuers.Header(name)
		}
		req := httptest.NewRequest(http.MethodGet, "http://"+addr+"/v1/videos/1", nil)
		req.RequestURI, req.Header = "", header
		res, err := client(t, false).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body := readAll(t, res)
		ctx := t.Context()
		for key, values := range header {
			ctx = metadata.AppendToOutgoingContext(ctx, key, values[0])
		}
		said, err := say(ctx, conn, "")
		got := want
		got.status, got.code, got.reason, got.challenge, got.body = res.StatusCode, status.Code(err), problem.ReasonOf(err), res.Header.Get("WWW-Authenticate"), said
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(want)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", name, diff)
		}
		if want.status == 200 && body != want.body || want.status != 200 && decode(t, body)["reason"] != want.reason {
			t.Errorf("%q over REST: %s", name, body)
		}
	}
}

// One rate counts the requests over both protocols. Each user has their own.
func TestAUserHasARate(t *testing.T) {
	t.Parallel()
	issuers := authtest.New(t)
	s := limited(issuers.Callers, io.Discard, serve.Options{UserRate: 1})
	s.rules["/test.Echo/Say"] = auth.SignedIn
	addr := s.start(t)
	conn, http11 := dial(t, addr), client(t, false)
	rest := func(who string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/v1/videos/1", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = issuers.Header(who)
		res, err := http11.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return res
	}
	var pause []string
	rpc := func(who string) error {
		ctx := t.Context()
		for key, values := range issuers.Header(who) {
			ctx = metadata.AppendToOutgoingContext(ctx, key, values[0])
		}
		var trailer metadata.MD
		err := conn.Invoke(ctx, "/test.Echo/Say", wrapperspb.String(""), new(wrapperspb.StringValue), grpc.Trailer(&trailer))
		pause = trailer.Get("grpc-retry-pushback-ms")
		return err
	}
	// On a busy machine a second may pass between two requests.
	const most = 1000
	res := rest("owner")
	for n := 0; n < most && res.StatusCode == http.StatusOK; n++ {
		res = rest("owner")
	}
	if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1" {
		t.Errorf("REST: %d, Retry-After %q", res.StatusCode, res.Header.Get("Retry-After"))
	}
	err := rpc("owner")
	for n := 0; n < most && err == nil; n++ {
		err = rpc("owner")
	}
	if status.Code(err) != codes.ResourceExhausted || problem.ReasonOf(err) != "RATE_EXCEEDED" || !strings.Contains(status.Convert(err).Proto().String(), "RetryInfo") {
		t.Errorf("gRPC: %v", status.Convert(err).Proto())
	}
	if len(pause) != 1 || pause[0] != "1000" {
		t.Errorf("gRPC's policies of retries are to pause for %q, want 1000 ms", pause)
	}
	if res, err := rest("other user"), rpc("admin"); res.StatusCode != http.StatusOK || err != nil {
		t.Errorf("other users: %d, %v", res.StatusCode, err)
	}
	for range 20 {
		if err := rpc("service"); err != nil {
			t.Fatalf("a service: %v", err)
		}
	}
}

// A user whose requests do not end holds a part of the instance's places, over both
// protocols together, whatever the rate.
func TestAUserHoldsFewPlaces(t *testing.T) {
	t.Parallel()
	const most = 20
	issuers := authtest.New(t)
	s := limited(issuers.Callers, io.Discard, serve.Options{UserRate: 1000})
	entered, held := make(chan struct{}), make(chan struct{})
	s.rules["GET /v1/held"] = auth.Users
	s.rest.Get("/v1/held", func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-held
	})
	s.rules["GET /v1/others"] = auth.Services
	s.rest.Get("/v1/others", func(http.ResponseWriter, *http.Request) {})
	addr := s.start(t)
	conn, http11 := dial(t, addr), client(t, false)
	rest := func(who, path string) (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, nil)
		if err != nil {
			return 0, err
		}
		req.Header = issuers.Header(who)
		res, err := http11.Do(req)
		if err != nil {
			return 0, err
		}
		return res.StatusCode, res.Body.Close()
	}
	rpc := func(who string) error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", issuers.Header(who).Get("Authorization"))
		_, err := say(ctx, conn, "")
		return err
	}
	var requests errgroup.Group
	for range most {
		requests.Go(func() error {
			if code, err := rest("owner", "/v1/held"); code != http.StatusOK {
				return fmt.Errorf("a request that was held: %d, %w", code, err)
			}
			return nil
		})
		<-entered
	}
	if code, err := rest("owner", "/v1/videos/1"); code != http.StatusTooManyRequests {
		t.Errorf("one more over REST: %d, %v", code, err)
	}
	if err := rpc("owner"); status.Code(err) != codes.ResourceExhausted || problem.ReasonOf(err) != "CONCURRENCY_EXCEEDED" {
		t.Errorf("one more over gRPC: %v", err)
	}
	if code, err := rest("other user", "/v1/videos/1"); code != http.StatusOK || rpc("other user") != nil {
		t.Errorf("another user: %d, %v", code, err)
	}
	close(held)
	if err := requests.Wait(); err != nil {
		t.Error(err)
	}
	for range 2 * most { // each leaves its place
		if code, err := rest("owner", "/v1/others"); code != http.StatusForbidden {
			t.Fatalf("an operation that is not for users: %d, %v", code, err)
		}
		if code, err := rest("owner", "/v1/videos/1"); code != http.StatusOK || rpc("owner") != nil {
			t.Fatalf("afterwards: %d, %v", code, err)
		}
	}
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

func TestTheBodyOfARefusedRequestIsNotRead(t *testing.T) {
	t.Parallel()
	s := guarded(closed(t, false))
	s.rules["POST /v1/videos"] = auth.Users
	s.rest.Post("/v1/videos", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	if res := do(s, http.MethodPost, "/v1/videos", unread{t}); res.Code != http.StatusUnauthorized {
		t.Errorf("REST: %d %s", res.Code, res.Body)
	}
	// The answer over gRPC comes while the body is still open.
	body, end := io.Pipe()
	defer end.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.start(t)+"/test.Echo/Say", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	res, err := client(t, true).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got := res.Header.Get("Grpc-Status"); got != "16" {
		t.Errorf("gRPC: status %q, want 16", got)
	}
}

// The rule is that of the route which chi would serve, by any spelling of path and method.
// What has no route is answered as without a guard.
func TestNoSpellingPassesTheGuard(t *testing.T) {
	t.Parallel()
	s := guarded(closed(t, false))
	for line, want := range map[string]int{
		"GET /v1/videos/1":       401,
		"HEAD /v1/videos/1":      401,
		"GET /v1/videos/a%2Fb":   401,
		"GET /v1/videos/%2e%2e":  401,
		"GET /v1/videos/%00":     401,
		"GET /v1/videos/1?x=%zz": 401,
		"GET /v1/videos/..":      401,
		"GET /v1/%76ideos/1":     401,
		"GET //v1/videos/1":      404,
		"GET /v1/videos/1/":      404,
		"GET /V1/videos/1":       404,
		"GET /nowhere":           404,
		"POST /v1/videos/1":      405,
		"OPTIONS /v1/videos/1":   405,
		"get /v1/videos/1":       405,
		"GET /healthz":           200,
		"GET /health%7A":         200,
		"HEAD /readyz":           200,
		"GET /metrics":           200,
	} {
		method, target, _ := strings.Cut(line, " ")
		if res := do(s, method, target, nil); res.Code != want {
			t.Errorf("%s: %d, want %d", line, res.Code, want)
		}
	}
}

// Services on a developer's machine have no identity; elsewhere each has one, and so they
// have where the configuration names them.
func TestOperationsForServicesAreOpenLocally(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		local    bool
		services []string
		want     int
	}{
		{true, nil, 200}, {false, nil, 401}, {true, []string{"catalog@p.iam.gserviceaccount.com"}, 401},
	} {
		local, want := tc.local, tc.want
		s := guarded(closed(t, local, tc.services...))
		s.rules["GET /v1/videos/{id}"] = auth.Services
		if res := do(s, http.MethodGet, "/v1/videos/1", nil); res.Code != want {
			t.Errorf("local %t with services %v: %d, want %d", local, tc.services, res.Code, want)
		}
		s.rules["GET /v1/videos/{id}"] = auth.SignedIn
		if res := do(s, http.MethodGet, "/v1/videos/1", nil); res.Code != 401 {
			t.Errorf("local %t, for users: %d, want 401", local, res.Code)
		}
	}
}
