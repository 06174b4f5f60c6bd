package serve_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func do(s *service, method, target string, body io.Reader) *httptest.ResponseRecorder {
	_ = s.server() // for its rules
	res := httptest.NewRecorder()
	s.rest.ServeHTTP(res, httptest.NewRequest(method, target, body))
	return res
}

func decode(t testing.TB, body string) map[string]any {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("decode %q: %v", body, err)
	}
	return got
}

func TestUnknownPathsAndMethodsAreProblems(t *testing.T) {
	t.Parallel()
	s := newService(io.Discard)
	s.rest.Get("/v1/videos/{id}", func(http.ResponseWriter, *http.Request) {})
	s.rest.Patch("/v1/videos/{id}", func(http.ResponseWriter, *http.Request) {})

	res := do(s, http.MethodGet, "/nowhere", nil)
	doc := decode(t, res.Body.String())
	if res.Code != 404 || doc["type"] != "/problems/not-found" || doc["instance"] != "/nowhere" {
		t.Errorf("unknown path: %d %v", res.Code, doc)
	}
	if res = do(s, "BREW", "/nowhere", nil); res.Code != 404 || res.Header().Values("Allow") != nil {
		t.Errorf("unknown method on an unknown path: %d, Allow %q", res.Code, res.Header().Values("Allow"))
	}
	if res = do(s, "BREW", "/v1/videos/1", nil); res.Code != 405 || res.Header().Get("Allow") != "GET, HEAD, PATCH" {
		t.Errorf("unknown method: %d, Allow %q", res.Code, res.Header().Get("Allow"))
	}
	res = do(s, http.MethodDelete, "/v1/videos/1", nil)
	doc = decode(t, res.Body.String())
	if res.Code != 405 || doc["type"] != "/problems/method-not-allowed" || res.Header().Get("Allow") != "GET, HEAD, PATCH" {
		t.Errorf("another method: %d %v, Allow %q", res.Code, doc, res.Header().Get("Allow"))
	}
	if allow := do(s, http.MethodPut, "/v1/videos/a%2Fb", nil).Header().Get("Allow"); allow != "GET, HEAD, PATCH" {
		t.Errorf("another method on an encoded path: Allow %q", allow)
	}
	if res = do(s, http.MethodHead, "/v1/videos/1", nil); res.Code != 200 {
		t.Errorf("HEAD where there is GET: %d", res.Code)
	}
}

func TestAPanicIsAnsweredAndLogged(t *testing.T) {
	t.Parallel()
	var logs lockedBuffer
	s := newService(&logs)
	s.rest.Get("/panic", func(http.ResponseWriter, *http.Request) { panic("s3cret") })
	s.rest.Get("/half", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<16))
		panic("s3cret")
	})
	addr := s.start(t)
	res, body := get(t, client(t, false), "http://"+addr+"/panic")
	if res.StatusCode != 500 || decode(t, body)["reason"] != "INTERNAL" || strings.Contains(body, "s3cret") {
		t.Errorf("a panic was answered with %d %s", res.StatusCode, body)
	}
	if !strings.Contains(logs.String(), "s3cret") || !strings.Contains(logs.String(), "rest_test.go") {
		t.Errorf("the log lacks the panic or its stack:\n%s", logs.String())
	}
	res, err := client(t, false).Get("http://" + addr + "/half")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadAll(res.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half an answer ended with %v, want a broken connection", err)
	}
}

func TestEachRequestIsOneLineForCloudLogging(t *testing.T) {
	t.Parallel()
	var logs lockedBuffer
	s := newService(&logs)
	s.rest.Post("/v1/videos", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "12345")
	})
	do(s, http.MethodPost, "/v1/videos?page_size=1", nil)
	line := decode(t, logs.String())
	request, ok := line["httpRequest"].(map[string]any)
	if !ok || line["msg"] != "POST /v1/videos 201" || line["level"] != "INFO" {
		t.Fatalf("line: %v", line)
	}
	if latency, _ := request["latency"].(string); !strings.HasSuffix(latency, "s") {
		t.Errorf("latency %q, want seconds", latency)
	}
	delete(request, "latency")
	want := map[string]any{
		"requestMethod": "POST", "requestUrl": "/v1/videos", "status": 201.0,
		"responseSize": "5", "userAgent": "", "protocol": "HTTP/1.1",
	}
	if diff := cmp.Diff(want, request); diff != "" {
		t.Errorf("httpRequest (-want +got):\n%s", diff)
	}
}

func TestProbesAreLoggedAtDebug(t *testing.T) {
	t.Parallel()
	var logs lockedBuffer
	do(newService(&logs), http.MethodGet, "/healthz", nil)
	if got := decode(t, logs.String())["level"]; got != "DEBUG" {
		t.Errorf("a probe is logged at %v", got)
	}
}

func TestRESTIsBounded(t *testing.T) {
	t.Parallel()
	s := newService(io.Discard)
	s.rest.Post("/", func(_ http.ResponseWriter, r *http.Request) {
		if _, ok := r.Context().Deadline(); !ok {
			t.Error("the request has no deadline")
		}
		n, err := io.Copy(io.Discard, r.Body)
		var tooLarge *http.MaxBytesError
		if !errors.As(err, &tooLarge) || n != 256<<10 {
			t.Errorf("read %d bytes, then %v; want 256 KiB and a MaxBytesError", n, err)
		}
	})
	do(s, http.MethodPost, "/", bytes.NewReader(make([]byte, 256<<10+1)))
}
