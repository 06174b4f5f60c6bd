package catalog

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/serve"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
)

// FuzzTokens reads a video with two tokens: whatever text comes up, and a valid one
// made of the numbers. Neither gets an undocumented answer, a wait beyond its
// bound, or anything older than it demands.
func FuzzTokens(f *testing.F) {
	fix, id, other := setUp(f), uuid.MustParse("0190a5d0-0000-7000-8000-000000000001"), newVideoID()
	fix.peer.asked = nil
	fix.must(f, inbox.Applied, createdEvent(id, 1, "1"), titled(id, 2, "2"))
	fix.peer.has(ownersVideo(id, 3, "3"))
	router := newRouter(fix.service, quiet(), serve.NewHealth(quiet()))
	for version := int64(1); version < 5; version++ {
		f.Add(token(id, version), int64(1), version, version == 3)
		f.Add(tokenOf(position(id, version), position(other, version)), version, int64(1)<<62, false)
	}
	f.Add("", int64(-1), int64(-1<<63), true)
	f.Add("AgAFdmlkZW8", int64(0), int64(0), false)
	f.Fuzz(func(t *testing.T, text string, epoch, version int64, list bool) {
		made := consistency.Token{Positions: []consistency.Position{
			{AggregateType: "video", AggregateID: id.String(), Epoch: epoch, Version: version},
		}}
		for _, text := range []string{text, made.String()} {
			target := "/v1/videos/" + id.String()
			if list {
				target = "/v1/videos"
			}
			w := httptest.NewRecorder()
			// Nothing here waits on purpose; the owner has its time.
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			t.Cleanup(cancel)
			req := httptest.NewRequestWithContext(ctx, http.MethodGet, target+"?consistency_token="+url.QueryEscape(text), nil)
			req.Header.Set("Prefer", "wait=0")
			router.ServeHTTP(w, req)
			if ctx.Err() != nil || !slices.Contains([]int{200, 400, 409}, w.Code) {
				t.Fatalf("%q: %d %s, %v", text, w.Code, w.Body, ctx.Err())
			}
			parsed, err := consistency.Parse(text)
			if err != nil && w.Code != http.StatusBadRequest {
				t.Fatalf("%q is malformed, and answered %d", text, w.Code)
			}
			if w.Code != http.StatusOK {
				continue
			}
			var body struct {
				Version int64
				Videos  []struct{ Version int64 }
			}
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Fatal(err)
			}
			if list {
				body.Version = body.Videos[0].Version
			}
			for _, p := range parsed.Positions {
				if p.AggregateID == id.String() && p.AggregateType == aggregateType && !p.Reached(1, body.Version) {
					t.Fatalf("%q demands (%d, %d) and is answered version %d", text, p.Epoch, p.Version, body.Version)
				}
			}
		}
	})
}
