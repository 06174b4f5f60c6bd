package serve_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/authtest"
	"example.com/lockstep/internal/serve"
	"example.com/lockstep/internal/telemetry"
)

// traced is a context that makes lines as long as possible.
func traced(t *testing.T) context.Context {
	t.Helper()
	return trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled,
	}))
}

// inProduction is a router that logs like a deployed service.
func inProduction(t *testing.T, logs io.Writer, level slog.Level) *service {
	t.Helper()
	s := newService(io.Discard)
	s.log = telemetry.Logger(logs, level, "catalog", "a-project-of-thirty-characters")
	s.rest = serve.NewRouter(s.log, s.health, s.guard)
	return s
}

func TestAFailingRequestLeavesAShortLine(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*http.Request){
		"path":       func(r *http.Request) { r.URL.Path = "/" + strings.Repeat("\x01é\"", 20_000) },
		"query":      func(r *http.Request) { r.URL.RawQuery = strings.Repeat("q=%22&", 10_000) },
		"method":     func(r *http.Request) { r.Method = strings.Repeat("M", 60_000) },
		"user agent": func(r *http.Request) { r.Header.Set("User-Agent", strings.Repeat("\xff\"\\", 20_000)) },
		"escaped":    func(r *http.Request) { r.Header.Set("User-Agent", strings.Repeat("\x01", 20_000)) },
		"all of them": func(r *http.Request) {
			r.Method, r.URL.Path = "X", strings.Repeat("/<é>", 15_000)
			r.Header.Set("User-Agent", strings.Repeat("<é>", 20_000))
		},
	} {
		for _, level := range []slog.Level{slog.LevelInfo, slog.LevelDebug} {
			var logs bytes.Buffer
			r := httptest.NewRequest(http.MethodGet, "/nowhere", nil).WithContext(traced(t))
			prepare(r)
			res := httptest.NewRecorder()
			inProduction(t, &logs, level).rest.ServeHTTP(res, r)
			if res.Code/100 != 4 || logs.Len() == 0 || logs.Len() > 1024 {
				t.Errorf("%s at %s: %d with %d bytes of log, want 4xx with 1 KB at most:\n%.300s", name, level, res.Code, logs.Len(), logs.String())
			}
			if res.Body.Len() > 1024 {
				t.Errorf("%s: the answer has %d bytes", name, res.Body.Len())
			}
		}
	}
}

// A text from a request stays readable, but for the characters that take more than a byte in JSON.
func TestATextOfARequestIsReadable(t *testing.T) {
	t.Parallel()
	var logs bytes.Buffer
	r := httptest.NewRequest(http.MethodGet, "/nowhere", nil)
	r.Header.Set("User-Agent", `curl/8 ~ "q" \ é`)
	inProduction(t, &logs, slog.LevelInfo).rest.ServeHTTP(httptest.NewRecorder(), r)
	if want := `"userAgent":"curl/8 ~ ?q? ? ?"`; !strings.Contains(logs.String(), want) {
		t.Errorf("the line has no %s: %s", want, logs.String())
	}
}

func TestLinesHoldNoPersonalData(t *testing.T) {
	t.Parallel()
	var logs bytes.Buffer
	s := inProduction(t, &logs, slog.LevelInfo)
	s.rest.Get("/v1/users/{user_id}/engagements", func(http.ResponseWriter, *http.Request) {})
	s.rest.Delete("/v1/videos/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	for _, line := range []string{
		"GET /v1/users/s3cret/engagements?q=s3cret", "PUT /v1/users/s3cret/engagements", "HEAD /v1/users/s3cret/engagements",
		"GET /v1/users/s3cret/likes", "DELETE /v1/videos/s3cret?reason=s3cret",
	} {
		method, target, _ := strings.Cut(line, " ")
		do(s, method, target, nil)
	}
	if got := strings.Count(logs.String(), "\n"); got != 5 || strings.Contains(logs.String(), "s3cret") {
		t.Errorf("%d lines:\n%s", got, logs.String())
	}
	for _, want := range []string{
		`"GET /v1/users/{user_id}/engagements 200"`, `"PUT /v1/users/{user_id}/engagements 405"`, `"GET (no route) 404"`, `"DELETE /v1/videos/{id} 404"`,
	} {
		if !strings.Contains(logs.String(), want) {
			t.Errorf("no line says %s:\n%s", want, logs.String())
		}
	}
}

// Lines cost money, and a request that fails costs its client nothing.
func TestLinesAboutFaultsOfClientsAreFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logs lockedBuffer
		s := newService(&logs)
		s.rest.Get("/fine", func(http.ResponseWriter, *http.Request) {})
		echo(func(context.Context, string) (string, error) { return "", nil }).register(s.grpc)
		d := s.startInBubble(t)
		conn := d.grpcClient(t)
		for range 60 {
			do(s, http.MethodGet, "/nowhere", nil)
			do(s, http.MethodGet, "/fine", nil)
			_ = conn.Invoke(t.Context(), "/test.Echo/None", &emptypb.Empty{}, &emptypb.Empty{})
		}
		d.end(t)
		counts := map[string]int{}
		for line := range strings.Lines(logs.String()) {
			l := decode(t, line)
			counts[l["level"].(string)+" "+l["msg"].(string)]++
		}
		for want, n := range map[string]int{"INFO GET (no route) 404": 50, "DEBUG GET (no route) 404": 10, "INFO GET /fine 200": 60,
			"INFO unknown Unimplemented": 50, "DEBUG unknown Unimplemented": 10} {
			if counts[want] != n {
				t.Errorf("%d lines %q, want %d; all: %v", counts[want], want, n, counts)
			}
		}
	})
}

// A caller chooses its deadline, and a call that outlives a short one costs its caller nothing.
func TestDeadlinesOfCallersLeaveFewLines(t *testing.T) {
	t.Parallel()
	for timeout, most := range map[string]int{"10m": 50, "1H": 120} { // the second one ends with the service's own limit
		synctest.Test(t, func(t *testing.T) {
			var logs lockedBuffer
			s := newService(&logs)
			echo(func(ctx context.Context, _ string) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			}).register(s.grpc)
			d := s.startInBubble(t)
			var protocols http.Protocols
			protocols.SetUnencryptedHTTP2(true)
			transport := &http.Transport{DialContext: d.dial, Protocols: &protocols}
			defer transport.CloseIdleConnections()
			var calls sync.WaitGroup
			for range 60 {
				calls.Go(func() {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://test/test.Echo/Say", strings.NewReader("\x00\x00\x00\x00\x00"))
					if err != nil {
						t.Error(err)
						return
					}
					r.Header.Set("Content-Type", "application/grpc")
					r.Header.Set("Grpc-Timeout", timeout) // a client of gRPC would also end the stream
					res, err := transport.RoundTrip(r)
					if err != nil {
						t.Error(err)
						return
					}
					if _ = readAll(t, res); res.Header.Get("Grpc-Status")+res.Trailer.Get("Grpc-Status") != "4" {
						t.Errorf("%s: %v %v, want DEADLINE_EXCEEDED", timeout, res.Header, res.Trailer)
					}
				})
			}
			calls.Wait()
			d.end(t)
			counts := map[string]int{}
			for line := range strings.Lines(logs.String()) {
				l := decode(t, line)
				counts[l["level"].(string)+" "+l["msg"].(string)]++
			}
			warnings, infos := counts["WARN request failed"], counts["INFO /test.Echo/Say DeadlineExceeded"]
			if warnings == 0 || warnings+infos != most {
				t.Errorf("a timeout of %s: %v, want %d lines at INFO and above", timeout, counts, most)
			}
		})
	}
}

// While the issuer is away a request with any token of its name fails, and costs its sender
// nothing.
func TestAnIssuerThatIsAwayLeavesFewLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logs lockedBuffer
		s := guardedWith(closed(t, false), &logs) // nothing fetches the keys
		d := s.startInBubble(t)
		conn := d.grpcClient(t)
		token := "Bearer " + invented(t)
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", token)
		var flood sync.WaitGroup
		for range 200 {
			flood.Go(func() {
				r := httptest.NewRequest(http.MethodGet, "/v1/videos/1", nil)
				r.Header.Set("Authorization", token)
				res := httptest.NewRecorder()
				s.rest.ServeHTTP(res, r)
				if res.Code != http.StatusServiceUnavailable || res.Header().Get("Retry-After") == "" {
					t.Errorf("REST: %d %s", res.Code, res.Body)
				}
				if _, err := say(ctx, conn, ""); status.Code(err) != codes.Unavailable {
					t.Errorf("gRPC: %v", err)
				}
			})
		}
		flood.Wait()
		d.end(t)
		lines := map[string]int{}
		for line := range strings.Lines(logs.String()) {
			lines[decode(t, line)["level"].(string)]++
		}
		// 50 at once of each protocol, and ten a second while the last ones wait, which is less than four seconds.
		if most := 2 * (50 + 4*10); lines["INFO"] > most || lines["WARN"]+lines["ERROR"] > 0 {
			t.Errorf("lines by level: %v; want at most %d at INFO and none above", lines, most)
		}
	})
}

// invented is a token of the issuer of closed, by a key that the issuer does not have.
func invented(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "invented"))
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: "https://issuer.example", Audience: jwt.Audience{"a"}, Subject: "x", Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour)),
	}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// What is for everybody costs its sender nothing, either.
func TestRequestsForEverybodyLeaveFewLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logs lockedBuffer
		s := newService(&logs)
		s.rules["GET /openapi.json"] = auth.Public
		s.rest.Get("/openapi.json", func(http.ResponseWriter, *http.Request) {})
		for range 60 {
			do(s, http.MethodGet, "/openapi.json", nil)
		}
		if got := strings.Count(logs.String(), `"level":"INFO"`); got != 50 {
			t.Errorf("%d lines at INFO, want 50", got)
		}
	})
}

// Tokens with an invented key cost their sender nothing, too.
func TestAFloodOfUnknownKeysLeavesFewLines(t *testing.T) {
	t.Parallel()
	var logs lockedBuffer
	issuers := authtest.New(t)
	s := guardedWith(issuers.Callers, &logs)
	ask := func(name string) int {
		r := httptest.NewRequest(http.MethodGet, "/v1/videos/1", nil)
		r.Header = issuers.Header(name)
		res := httptest.NewRecorder()
		s.rest.ServeHTTP(res, r)
		return res.Code
	}
	if code := ask("owner"); code != 200 { // the keys are there
		t.Fatalf("a known key: %d", code)
	}
	began := time.Now()
	var refused, busy atomic.Int64
	for busy.Load() < 200 && !t.Failed() {
		var flood sync.WaitGroup
		for range 200 {
			flood.Go(func() {
				switch code := ask("unknown key id"); code {
				case http.StatusUnauthorized:
					refused.Add(1)
				case http.StatusTooManyRequests:
					busy.Add(1)
				default:
					t.Errorf("an unknown key: %d", code)
				}
			})
		}
		flood.Wait()
	}
	if code := ask("owner"); code != 200 {
		t.Errorf("a known key after the flood: %d", code)
	}
	lines := map[string]int{}
	for line := range strings.Lines(logs.String()) {
		lines[decode(t, line)["level"].(string)]++
	}
	t.Logf("%d refused, %d too many in %s: %v", refused.Load(), busy.Load(), time.Since(began), lines)
	if most := 2 + 50 + 10*int(time.Since(began)/time.Second+1); lines["INFO"] > most || lines["WARN"]+lines["ERROR"] > 0 {
		t.Errorf("lines by level: %v; want at most %d at INFO and none above", lines, most)
	}
}
