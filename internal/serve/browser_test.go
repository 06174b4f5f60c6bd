package serve_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/serve"
)

// called is a service with a route for users that pages of these origins may call.
func called(t *testing.T, origins ...string) *service {
	t.Helper()
	s := newService(io.Discard)
	s.guard = serve.NewGuard(s.rules, closed(t, false), serve.Options{Origins: origins})
	s.rest = serve.NewRouter(s.log, s.health, s.guard)
	s.rules["GET /v1/videos"], s.rules["GET /openapi.json"], s.rules["GET /panic"] = auth.Users, auth.Public, auth.Public
	s.rest.Get("/v1/videos", func(http.ResponseWriter, *http.Request) {})
	s.rest.Get("/openapi.json", func(http.ResponseWriter, *http.Request) {})
	s.rest.Get("/panic", func(http.ResponseWriter, *http.Request) { panic("of a test") })
	return s
}

func TestABrowserKeepsFramesAndRunsNoAnswer(t *testing.T) {
	t.Parallel()
	s := called(t)
	for line, status := range map[string]int{
		"GET /openapi.json": 200, "HEAD /openapi.json": 200, "GET /v1/videos": 401, "GET /nowhere": 404, "POST /v1/videos": 405,
		"GET /panic": 500, "GET /healthz": 200, "GET /readyz": 200, "GET /metrics": 200,
	} {
		method, target, _ := strings.Cut(line, " ")
		res := do(s, method, target, nil)
		if res.Code != status {
			t.Errorf("%s: %d, want %d", line, res.Code, status)
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options":    "nosniff",
			"Cache-Control":             "no-store",
			"Content-Security-Policy":   "default-src 'none'; frame-ancestors 'none'",
			"X-Frame-Options":           "DENY",
			"Vary":                      "Authorization, Consistency, Consistency-Token",
			"Strict-Transport-Security": "", // this port has no TLS
		} {
			if got := res.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", line, name, got, want)
			}
		}
	}
}

// ask sends a request as a page of that origin does; asking is the method of a preflight.
func ask(s *service, method, target, origin, asking string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.Header.Set("Origin", origin)
	if asking != "" {
		r.Header.Set("Access-Control-Request-Method", asking)
		r.Header.Set("Access-Control-Request-Headers", "authorization,consistency-token")
	}
	res := httptest.NewRecorder()
	s.rest.ServeHTTP(res, r)
	return res
}

// granted are the headers of an answer by which a browser lets a page in.
func granted(res *httptest.ResponseRecorder) map[string]string {
	found := map[string]string{}
	for name, values := range res.Header() {
		if name, ok := strings.CutPrefix(name, "Access-Control-"); ok {
			found[name] = strings.Join(values, "|")
		}
	}
	return found
}

func TestNoPageOfAnotherOriginIsLetInUnlessItIsNamed(t *testing.T) {
	t.Parallel()
	const app = "https://app.example"
	for name, tc := range map[string]struct {
		origins []string
		origin  string
	}{
		"none is named":   {nil, app},
		"another one":     {[]string{app}, "https://evil.example"},
		"a longer name":   {[]string{app}, "https://app.example.evil.example"},
		"without TLS":     {[]string{app}, "http://app.example"},
		"another port":    {[]string{app}, "https://app.example:8443"},
		"a sandbox":       {[]string{app}, "null"},
		"no origin":       {[]string{app}, ""},
		"all of the list": {[]string{app, "https://b.example"}, app + ",https://b.example"},
	} {
		s := called(t, tc.origins...)
		for _, res := range []*httptest.ResponseRecorder{
			ask(s, http.MethodOptions, "/v1/videos", tc.origin, http.MethodPost), ask(s, http.MethodGet, "/openapi.json", tc.origin, ""),
			ask(s, http.MethodGet, "/v1/videos", tc.origin, ""),
		} {
			if got := granted(res); len(got) > 0 {
				t.Errorf("%s: %d with %v", name, res.Code, got)
			}
		}
		if res := ask(s, http.MethodOptions, "/v1/videos", tc.origin, http.MethodPost); res.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: a preflight is answered %d", name, res.Code)
		}
	}
}

func TestPagesOfNamedOriginsMayCall(t *testing.T) {
	t.Parallel()
	s := called(t, "https://app.example", "http://localhost:3000")
	for _, origin := range []string{"https://app.example", "http://localhost:3000"} {
		preflight := ask(s, http.MethodOptions, "/v1/videos", origin, http.MethodPatch)
		want := map[string]string{
			"Allow-Origin": origin, "Allow-Methods": "GET, HEAD, POST, PUT, PATCH, DELETE", "Allow-Headers": "Authorization, *", "Max-Age": "600",
		}
		if diff := cmp.Diff(want, granted(preflight)); diff != "" || preflight.Code != http.StatusNoContent || preflight.Body.Len() > 0 {
			t.Errorf("a preflight of %s: %d (-want +got):\n%s", origin, preflight.Code, diff)
		}
		// A page has to see refusals, too.
		for target, status := range map[string]int{"/openapi.json": 200, "/v1/videos": 401, "/nowhere": 404} {
			res := ask(s, http.MethodGet, target, origin, "")
			if diff := cmp.Diff(map[string]string{"Allow-Origin": origin, "Expose-Headers": "*"}, granted(res)); diff != "" || res.Code != status {
				t.Errorf("GET %s by %s: %d (-want +got):\n%s", target, origin, res.Code, diff)
			}
			if diff := cmp.Diff([]string{"Authorization, Consistency, Consistency-Token, Origin"}, res.Header()["Vary"]); diff != "" {
				t.Errorf("GET %s by %s: Vary (-want +got):\n%s", target, origin, diff)
			}
		}
	}
	if res := ask(s, http.MethodOptions, "/v1/videos", "https://app.example", ""); res.Code != http.StatusMethodNotAllowed {
		t.Errorf("OPTIONS that is no preflight: %d", res.Code)
	}
}

func TestOriginsOfTheFlag(t *testing.T) {
	t.Parallel()
	var o serve.Origins
	if err := o.Set("https://app.example, http://localhost:3000,http://127.0.0.1:8000"); err != nil || len(o) != 3 || o[1] != "http://localhost:3000" {
		t.Errorf("%q, %v", o, err)
	}
	for _, list := range []string{
		"", "*", "null", "app.example", "https://", "https://*", "https://App.example", "https://app.example/", "https://app.example/x", "https://u@app.example",
		"http://app.example", "ftp://localhost", "https://app.example,", "https://app.example?x", "https://a.example https://b.example",
		"https://app.example:443", "http://localhost:80", "https://app.example:", "https://bücher.example",
	} {
		if err := o.Set(list); err == nil {
			t.Errorf("%q is taken: %q", list, o)
		}
	}
	if len(o) != 3 {
		t.Errorf("a list that was refused leaves %q", o)
	}
}
