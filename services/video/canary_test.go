package video

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/lockstep/internal/canary"
	"example.com/lockstep/services/video/aggregate"
)

// TestOneCanaryAnInterval has several instances commit at once: in each interval one of them
// makes a version, also the first, and after a clock that was ahead. No user sees the video.
func TestOneCanaryAnInterval(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	instances := make([]*canaryWriter, 4)
	for i := range instances {
		instances[i] = newCanaryWriter(aggregate.NewWriter(a.db, nil), time.Hour, slog.New(slog.DiscardHandler))
	}
	due := func() []outboxRow {
		t.Helper()
		var all errgroup.Group
		for _, c := range instances {
			all.Go(func() error {
				_, err := c.commit(t.Context())
				return err
			})
		}
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
		return a.outbox(canary.Video.String())
	}
	age := func(by string) {
		a.exec(`UPDATE video.videos SET updated_at = updated_at - $1::interval WHERE video_id = $2`, by, canary.Video)
	}
	for version := range 3 {
		for range 2 { // the second finds nothing to do
			if events := due(); len(events) != version+1 || events[version].Version != int64(version)+1 {
				t.Fatalf("after %d intervals: %+v", version+1, events)
			}
		}
		age("2 hours")
	}
	age("-4 hours")
	if events := due(); len(events) < 4 {
		t.Errorf("a version of the future stops the next one: %d events", len(events))
	}
	if r := a.call(http.MethodGet, "/v1/videos", nil); fmt.Sprint(r.Body["videos"]) != "[]" {
		t.Errorf("a list has the canary: %s", r.Raw)
	}
	if r := a.call(http.MethodGet, "/v1/videos/"+canary.Video.String(), nil); r.Status != http.StatusNotFound {
		t.Errorf("a user reads the canary: %d %s", r.Status, r.Raw)
	}
}
