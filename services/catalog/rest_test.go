package catalog

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/internal/serve"
	"example.com/lockstep/pkg/eventing/inbox"
)

// listen serves f's API on a port of its own and returns its address.
func (f *fixture) listen(t testing.TB) string {
	t.Helper()
	addr, _ := f.listenFor(t, auth.Open())
	return addr
}

// listenFor is listen for callers that are not Everyone.
func (f *fixture) listenFor(t testing.TB, callers *auth.Authenticator) (addr string, server *serve.Server) {
	t.Helper()
	lis := porttest.Listen(t)
	health := serve.NewHealth(quiet())
	guard := serve.NewGuard(access, callers, serve.Options{})
	rpc := newGRPC(f.service, quiet(), guard)
	rpc.Reflect()
	server = serve.New(quiet(), newRouter(f.service, quiet(), health, guard), rpc, health)
	server.Linger = time.Millisecond
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- server.Run(ctx, lis) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return lis.Addr().String(), server
}

// reply is an answer with a body that has been checked against the OpenAPI document.
type reply struct {
	status int
	header http.Header
	body   map[string]any
}

// call sends "METHOD target" with headers "Name: value".
func call(t testing.TB, addr, line string, headers ...string) reply {
	t.Helper()
	method, target, _ := strings.Cut(line, " ")
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	r := reply{status: resp.StatusCode, header: resp.Header}
	if err := json.Unmarshal(body, &r.body); err != nil {
		t.Fatalf("%s: %d %q: %v", line, resp.StatusCode, body, err)
	}
	conforms(t, req, resp, body)
	return r
}

func TestRESTReadsAVideo(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	addr, target := f.listen(t), "/v1/videos/"+id.String()
	if r := call(t, addr, "GET "+target); r.status != 404 || r.body["reason"] != "VIDEO_NOT_FOUND" {
		t.Errorf("unknown: %+v", r)
	}
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	f.peer.has(ownersVideo(id, 2, "second"))

	r := call(t, addr, "GET "+target)
	want := map[string]any{
		"video_id": id.String(), "uploader_id": uploader.String(), "title": "first", "description": "about it",
		"duration_seconds": 60.0, "published_at": "2026-03-04T05:05:07.891011Z", "version": 1.0,
		"created_at": "2026-03-04T05:07:07.891011Z", "updated_at": "2026-03-04T05:07:07.891011Z", "source": "projection",
		"like_count": 0.0, "bookmark_count": 0.0, "total_watched_seconds": 0.0,
	}
	if diff := cmp.Diff(want, r.body); diff != "" || r.status != 200 {
		t.Errorf("%d (-want +got):\n%s", r.status, diff)
	}
	if r.header.Get("ETag") != `"1"` || r.header.Get("Cache-Control") != "no-store" || r.header.Get("Preference-Applied") != "" {
		t.Errorf("header %v", r.header)
	}

	if r := call(t, addr, "GET "+strings.ReplaceAll(target, "-", "%2D")); r.status != 200 || r.body["video_id"] != id.String() {
		t.Errorf("an id with encoded hyphens: %+v", r)
	}

	second := token(id, 2)
	for _, headers := range [][]string{
		{"Consistency-Token: " + second, "Prefer: wait=0"},
		{"Consistency-Token: " + second, `Prefer: respond-async, WAIT = "0" ; x=1, wait=9`},
		{"Consistency-Token: " + second, "Consistency-Token: " + second, "Prefer: handling=lenient", "Prefer: wait=0"},
	} {
		r := call(t, addr, "GET "+target, headers...)
		if r.body["source"] != "authority" || r.body["version"] != 2.0 || r.header.Get("Preference-Applied") != "wait=0" || r.header.Get("ETag") != `"2"` {
			t.Errorf("%v: %+v", headers, r)
		}
	}
	for _, r := range []reply{
		call(t, addr, "GET "+target+"?consistency_token="+second, "Prefer: wait=0"),
		call(t, addr, "GET "+target+"?consistency_token="+second, "Prefer: wait=0", "Consistency-Token: "+second),
	} {
		if r.body["source"] != "authority" {
			t.Errorf("token in the query: %+v", r)
		}
	}
	for asked, applied := range map[string]string{"10": "wait=10", "11": "wait=10", "99999999999999999999999": "wait=10", "3": "wait=3"} {
		r := call(t, addr, "GET "+target, "Consistency-Token: "+token(id, 1), "Prefer: wait="+asked)
		if r.status != 200 || r.header.Get("Preference-Applied") != applied {
			t.Errorf("wait=%s: %d, applied %q", asked, r.status, r.header.Get("Preference-Applied"))
		}
	}
	if r := call(t, addr, "GET "+target, "Consistency-Token: "+token(id, 9), "Prefer: wait=0"); r.status != 409 || r.body["reason"] != "TOKEN_AHEAD" {
		t.Errorf("token ahead: %+v", r)
	}
	f.peer.fails(status.Error(codes.Unavailable, "away"))
	if r := call(t, addr, "GET "+target, "Consistency-Token: "+second, "Prefer: wait=0"); r.status != 503 || r.header.Get("Retry-After") == "" {
		t.Errorf("owner away: %+v", r)
	}
	f.must(t, inbox.Applied, deletedEvent(id, 2))
	r = call(t, addr, "GET "+target, "Consistency-Token: "+second)
	if r.status != 410 || r.body["version"] != 2.0 || r.body["deleted_at"] != "2026-03-04T05:08:07.891011Z" || r.body["source"] != "projection" {
		t.Errorf("deleted: %+v", r)
	}
}

func TestRESTLists(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	addr := f.listen(t)
	if r := call(t, addr, "GET /v1/videos"); r.status != 200 || len(r.body["videos"].([]any)) != 0 {
		t.Errorf("empty list: %+v", r)
	}
	for range 3 {
		f.must(t, inbox.Applied, createdEvent(newVideoID(), 1, "a b"))
	}
	r := call(t, addr, "GET /v1/videos?page_size=2&q=A+B&uploader_id="+uploader.String())
	next, _ := r.body["next_page_token"].(string)
	if len(r.body["videos"].([]any)) != 2 || next == "" || r.body["source"] != "projection" {
		t.Errorf("first page: %+v", r)
	}
	r = call(t, addr, "GET /v1/videos?q=A+B&uploader_id="+uploader.String()+"&page_token="+next)
	if len(r.body["videos"].([]any)) != 1 || r.body["next_page_token"] != "" {
		t.Errorf("last page: %+v", r)
	}
	id := newVideoID()
	f.peer.has(ownersVideo(id, 5, "fifth"))
	eventually(t, func() bool { // on a busy machine the owner may be too slow
		r = call(t, addr, "GET /v1/videos?consistency_token="+token(id, 5), "Prefer: wait=0")
		return r.body["reason"] != "NOT_FRESH_ENOUGH"
	})
	if len(r.body["videos"].([]any)) != 4 || r.body["source"] != "authority" {
		t.Errorf("with a token: %+v", r)
	}
	if r := call(t, addr, "GET /openapi.json"); r.body["openapi"] != "3.1.0" {
		t.Errorf("document: %v", r.body["openapi"])
	}
	for _, probe := range []string{"/healthz", "/readyz"} {
		if r := call(t, addr, "GET "+probe); r.status != 200 {
			t.Errorf("%s: %d", probe, r.status)
		}
	}
}

func TestRESTTooManyWaiters(t *testing.T) {
	t.Parallel()
	f, id := setUpWith(t, 0), newVideoID()
	addr := f.listen(t)
	r := call(t, addr, "GET /v1/videos/"+id.String(), "Consistency-Token: "+token(id, 1))
	if r.status != 429 || r.header.Get("Retry-After") != "1" {
		t.Errorf("%+v", r)
	}
}
