package catalog

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/attack"
	"example.com/lockstep/internal/serve"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
)

// FuzzTokens reads a video, the list of videos or a list of a user's with two tokens:
// a random text, and a valid token made of the numbers. Neither gets an undocumented
// answer, a wait beyond its bound, or anything older than it demands.
func FuzzTokens(f *testing.F) {
	id := uuid.MustParse("0190a5d0-0000-7000-8000-000000000001")
	fix := fuzzed(f, id)
	reads := []fuzzedRead{
		{"/v1/videos/" + id.String(), func(version int64) consistency.Position { return position(id, version) }},
		{"/v1/videos", func(version int64) consistency.Position { return position(id, version) }},
	}
	nowhere := []consistency.Position{position(newVideoID(), 1)}
	reads, nowhere = fix.withEngagements(f, reads, nowhere)
	router := newRouter(fix.service, quiet(), serve.NewHealth(quiet()), openGuard())
	for read, r := range reads {
		for version := int64(1); version < 5; version++ {
			f.Add(tokenOf(r.about(version)), int64(1), version, byte(read))
			f.Add(tokenOf(r.about(version), nowhere[int(version)%len(nowhere)]), version, int64(1)<<62, byte(read))
		}
	}
	f.Add("", int64(-1), int64(-1<<63), byte(1))
	f.Add("AgAFdmlkZW8", int64(0), int64(0), byte(0))
	f.Fuzz(func(t *testing.T, text string, epoch, version int64, read byte) {
		r := reads[int(read)%len(reads)]
		made := r.about(version)
		made.Epoch = epoch
		for _, text := range []string{text, consistency.Token{Positions: []consistency.Position{made}}.String()} {
			w := httptest.NewRecorder()
			// Nothing here waits on purpose; this is the time of a slow owner.
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			t.Cleanup(cancel)
			req := httptest.NewRequestWithContext(ctx, http.MethodGet, r.target+"?consistency_token="+url.QueryEscape(text), nil)
			req.Header.Set("Prefer", "wait=0")
			router.ServeHTTP(w, req)
			if ctx.Err() != nil || !slices.Contains([]int{200, 400, 409}, w.Code) {
				t.Fatalf("%s with %q: %d %s, %v", r.target, text, w.Code, w.Body, ctx.Err())
			}
			parsed, err := consistency.Parse(text)
			if err != nil && w.Code != http.StatusBadRequest {
				t.Fatalf("%q is malformed, and answered %d", text, w.Code)
			}
			if w.Code != http.StatusOK {
				continue
			}
			shown := shownIn(t, w.Body.Bytes())
			for _, p := range parsed.Positions {
				if p.Key() == made.Key() && !p.Reached(1, shown) {
					t.Fatalf("%s: %q demands (%d, %d) and is answered version %d", r.target, text, p.Epoch, p.Version, shown)
				}
			}
		}
	})
}

// fuzzedRead is a read, and the positions in a token that it minds.
type fuzzedRead struct {
	target string
	about  func(version int64) consistency.Position
}

// fuzzed is a catalog with one video at version 2; the owner has version 3 of it.
func fuzzed(f *testing.F, id uuid.UUID) *fixture {
	f.Helper()
	fix := setUp(f)
	fix.peer.asked = nil
	fix.must(f, inbox.Applied, createdEvent(id, 1, "1"), titled(id, 2, "2"))
	fix.peer.has(ownersVideo(id, 3, "3"))
	return fix
}

// shownIn is the version of what is in an answer, alone or as the only one of a list.
func shownIn(t *testing.T, body []byte) int64 {
	t.Helper()
	type one struct{ Version int64 }
	var answer struct {
		one

		Videos      []one
		Engagements []one
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatal(err)
	}
	all := answer.Videos
	all = append(all, answer.Engagements...)
	if answer.Version > 0 {
		all = append(all, answer.one)
	}
	if len(all) != 1 {
		t.Fatalf("one thing is there, and the answer is %s", body)
	}
	return all[0].Version
}

func FuzzHTTP(f *testing.F) {
	id := uuid.MustParse(attack.Placeholder)
	fix := fuzzed(f, id)
	fix.engaged(f, id, newVideoID())
	router := newRouter(fix.service, quiet(), serve.NewHealth(quiet()), openGuard())
	attack.HTTP(f, router, func(*testing.T) string { return attack.Placeholder },
		"/v1/videos", "/v1/videos/"+attack.Placeholder,
		"/v1/users/"+attack.Placeholder+"/engagements",
		"/openapi.json", "/readyz", "/a")
}

func FuzzRPC(f *testing.F) {
	id := uuid.MustParse(attack.Placeholder)
	fix := setUp(f)
	fix.must(f, inbox.Applied, createdEvent(id, 1, "1"))
	fix.engaged(f, id, id)
	attack.RPC(f, fix.dial(f), func(*testing.T) string { return attack.Placeholder })
}
