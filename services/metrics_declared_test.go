package services_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/monitoring"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

// TestMetricsAreDeclared runs both services as they are deployed, and compares /metrics with
// the table of package monitoring: a metric, a label or a value that is not declared, and a
// metric that is declared and does not appear. A second video finds no topic, for the metrics
// of an outage.
func TestMetricsAreDeclared(t *testing.T) {
	t.Parallel()
	b := startBroker(t, broker.Local)
	w, away := newWorld(t, b), newWorld(t, b)
	away.project = "nowhere"
	w.spawnVideo(t, w.videoAddr).ready(t)
	w.spawnCatalog(t, w.catalogAddr).ready(t)

	v := w.create(t, "First cut")
	w.read(t, v.ID, v.Token, 10).is(t, http.StatusOK, 1)
	w.read(t, v.ID, tokenFor(v.ID, 2), 1).is(t, http.StatusConflict, 0)
	call(t, http.MethodPut, w.engagement(uploader, v.ID), nil, fields{"liked": true}).is(t, http.StatusOK, 1)
	videos, copies := w.dial(t, w.videoAddr), w.dial(t, w.catalogAddr)
	if _, err := videov1.NewVideoServiceClient(videos).GetVideo(t.Context(), &videov1.GetVideoRequest{VideoId: v.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := catalogv1.NewCatalogServiceClient(copies).GetVideo(t.Context(), &catalogv1.GetVideoRequest{VideoId: v.ID}); err != nil {
		t.Fatal(err)
	}
	err := videos.Invoke(t.Context(), "/video.v1.VideoService/Nothing", &videov1.GetVideoRequest{}, &videov1.GetVideoResponse{})
	if status.Code(err) != codes.Unimplemented {
		t.Fatalf("a method that does not exist: %v", err)
	}
	if err := copies.Invoke(t.Context(), "/catalog.v1.CatalogService/Nothing", &catalogv1.GetVideoRequest{}, &catalogv1.GetVideoResponse{}); status.Code(err) != codes.Unimplemented {
		t.Fatalf("a method that does not exist: %v", err)
	}
	away.spawnVideo(t, away.videoAddr).ready(t)
	away.create(t, "Does not leave")
	appears(t, away.videoAddr, func(m monitoring.Metric) bool { return m.Name == "outbox.topics.paused_age" })
	for addr, service := range map[string]string{w.videoAddr: "video", w.catalogAddr: "catalog"} {
		appears(t, addr, func(m monitoring.Metric) bool {
			return (m.Service == service || m.Service == "both") && (m.Seldom == "" || strings.Contains(m.Seldom, "gRPC call"))
		})
	}
}

// appears waits until addr shows all metrics of the table that wanted holds for. It fails the
// test for one that addr shows otherwise than declared.
func appears(t *testing.T, addr string, wanted func(monitoring.Metric) bool) {
	t.Helper()
	var missing []string
	eventually(t, "the declared metrics appear at "+addr, func() bool {
		shown := shownSeries(t, addr)
		before := len(missing)
		missing = nil
		for _, m := range monitoring.Metrics {
			if wanted(m) && !slices.ContainsFunc(m.Series(), func(name string) bool { return shown[name] }) {
				missing = append(missing, m.Prometheus())
			}
		}
		if len(missing) != before {
			t.Log(addr, "does not show", missing)
		}
		return len(missing) == 0
	})
}

var (
	seriesOnMetrics = regexp.MustCompile(`(?m)^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+$`)
	labelOfSeries   = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
	// notOurs are what Prometheus's client shows of itself, of Go and of the process.
	notOurs = regexp.MustCompile(`^(go|process|promhttp)_`)
)

// shownSeries returns the names of the series at addr, and compares each with the table.
func shownSeries(t *testing.T, addr string) map[string]bool {
	t.Helper()
	declared := map[string]monitoring.Metric{}
	for _, m := range monitoring.Metrics {
		for _, name := range m.Series() {
			declared[name] = m
		}
	}
	shown := map[string]bool{}
	for _, line := range seriesOnMetrics.FindAllStringSubmatch(metrics(t, addr), -1) {
		name := line[1]
		shown[name] = true
		m, ok := declared[name]
		if !ok {
			if !notOurs.MatchString(name) {
				t.Errorf("%s shows %s, which package monitoring does not declare", addr, line[0])
			}
			continue
		}
		for _, label := range labelOfSeries.FindAllStringSubmatch(line[2], -1) {
			if strings.HasPrefix(label[1], "otel_scope_") || label[1] == "le" {
				continue // of OpenTelemetry and of each histogram
			}
			i := slices.IndexFunc(m.Labels, func(l monitoring.Label) bool { return l.Name == label[1] })
			if i < 0 {
				t.Errorf("%s shows %s with a label that is not declared: %s", addr, name, label[0])
			} else if l := m.Labels[i]; l.Values != nil && !slices.Contains(l.Values, label[2]) {
				t.Errorf("%s shows %s with a value that is not declared: %s", addr, name, label[0])
			}
		}
	}
	return shown
}
