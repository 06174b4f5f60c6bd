package services_test

import (
	"net/http"
	"os/exec"
	"testing"
	"time"

	"google.golang.org/grpc"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/monitoring"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

// maxSeries bounds the series of an instance after a short load: deploy/terraform/README.md has
// the cost of so many.
const maxSeries = 1500

// TestPanelsShowThePair runs both services as they are deployed, under load, and a Prometheus
// with the configuration of docker-compose.yml. Each query of each board returns a value, and
// each label of a legend has one. Boards on Google Cloud's metrics have nothing here.
func TestPanelsShowThePair(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("prometheus"); err != nil {
		t.Skip("not installed: prometheus; no panel is shown to work")
	}
	w := newWorld(t, startBroker(t, broker.Local))
	w.spawnVideo(t, w.videoAddr).ready(t)
	w.spawnCatalog(t, w.catalogAddr).ready(t)
	p := startPrometheus(t, w)

	video, catalog := w.dial(t, w.videoAddr), w.dial(t, w.catalogAddr)
	empty := ownQueries()
	t.Logf("%d queries", len(empty))
	start := time.Now()
	if !await(t.Context(), func() bool {
		w.requests(t, video, catalog)
		for name, q := range empty {
			if p.shows(t, q) {
				delete(empty, name)
			}
		}
		return len(empty) == 0
	}) {
		for name, q := range empty {
			t.Errorf("%s is empty: %s", name, q.Expr)
		}
	}
	t.Logf("all after %.1f s", time.Since(start).Seconds())
	for _, r := range p.query(t, `count by (service_name) ({job="lockstep"})`) {
		t.Logf("%s: %.0f series", r.labels["service_name"], r.value)
		if r.value > maxSeries {
			t.Errorf("%s has %.0f series, want %d at most", r.labels["service_name"], r.value, maxSeries)
		}
	}
}

// ownQueries are the queries on the services' own metrics, by board, panel and legend.
func ownQueries() map[string]monitoring.Query {
	queries := map[string]monitoring.Query{}
	for _, b := range monitoring.Boards {
		for _, row := range b.Rows {
			for _, p := range row.Panels {
				for _, q := range p.Queries {
					if !b.Google {
						queries[b.Title+", "+p.Title+": "+q.Legend] = q
					}
				}
			}
		}
	}
	return queries
}

// requests are some of each kind: writes, fresh reads, one for a version that does not exist, and
// calls over gRPC.
func (w *world) requests(t *testing.T, video, catalog *grpc.ClientConn) {
	t.Helper()
	v := w.create(t, "First cut")
	v = w.update(t, v, fields{"title": "Second cut"})
	w.read(t, v.ID, v.Token, 10).is(t, http.StatusOK, 2)
	w.read(t, v.ID, tokenFor(v.ID, 3), 1).is(t, http.StatusConflict, 0)
	call(t, http.MethodPut, w.engagement(uploader, v.ID), nil, fields{"liked": true}).is(t, http.StatusOK, 1)
	if _, err := videov1.NewVideoServiceClient(video).GetVideo(t.Context(), &videov1.GetVideoRequest{VideoId: v.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := catalogv1.NewCatalogServiceClient(catalog).GetVideo(t.Context(), &catalogv1.GetVideoRequest{VideoId: v.ID}); err != nil {
		t.Fatal(err)
	}
}
