package services_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/local/process"
	"example.com/lockstep/internal/monitoring"
	"example.com/lockstep/internal/porttest"
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

// requests are some of each kind: writes, fresh reads, one for a version that does not exist,
// engagements, and calls over gRPC.
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

// prometheus is a running Prometheus that scrapes a world.
type prometheus struct{ addr string }

// startPrometheus runs Debian's prometheus with the files of deploy/observability. It looks at
// this world's services, and more often.
func startPrometheus(t *testing.T, w *world) *prometheus {
	t.Helper()
	dir := t.TempDir()
	const configured = "../deploy/observability/"
	for _, name := range []string{"prometheus.yml", "rules.yaml"} {
		text, err := os.ReadFile(configured + name)
		if err != nil {
			t.Fatal(err)
		}
		changed := string(text)
		if name == "prometheus.yml" {
			for old, now := range map[string]string{
				`"video:8080"`: fmt.Sprintf("%q", w.videoAddr), `"catalog:8080"`: fmt.Sprintf("%q", w.catalogAddr),
				"scrape_interval: 5s": "scrape_interval: 1s", "scrape_timeout: 4s": "scrape_timeout: 1s",
			} {
				if !strings.Contains(changed, old) {
					t.Fatalf("%s has no %s", name, old)
				}
				changed = strings.Replace(changed, old, now, 1)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := &prometheus{addr: porttest.Addr(t)}
	child, err := process.Start(exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.addr), syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := child.Stop(syscall.SIGTERM, patience); err != nil || t.Failed() {
			t.Logf("prometheus ended with %v; its last lines:\n%s", err, child.Output())
		}
	})
	eventually(t, "prometheus is ready", func() bool {
		select {
		case <-child.Done():
			t.Fatalf("prometheus ended: %s", child.Output())
		default:
		}
		res, err := http.Get("http://" + p.addr + "/-/ready")
		return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
	})
	return p
}

// result is one line of a query's answer.
type result struct {
	labels map[string]string
	value  float64
}

// query evaluates PromQL now. Lines that are not a number are left out.
func (p *prometheus) query(t *testing.T, expr string) (lines []result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/api/v1/query?query="+url.QueryEscape(expr), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s: %s %s, %v", expr, answer.Status, answer.Error, err)
	}
	for _, r := range answer.Data.Result {
		var value float64
		if _, err := fmt.Sscan(fmt.Sprint(r.Value[1]), &value); err != nil {
			t.Fatalf("%s: value %v: %v", expr, r.Value[1], err)
		}
		if !math.IsNaN(value) {
			lines = append(lines, result{r.Metric, value})
		}
	}
	return lines
}

var labelOfLegend = regexp.MustCompile(`\{\{(\w+)\}\}`)

// shows reports whether the query has a line. A line of a panel that shows nothing but faults
// may be a bare 0; any other has the labels of its legend.
func (p *prometheus) shows(t *testing.T, q monitoring.Query) bool {
	t.Helper()
	for _, line := range p.query(t, q.Expr) {
		named := true
		for _, label := range labelOfLegend.FindAllStringSubmatch(q.Legend, -1) {
			named = named && line.labels[label[1]] != ""
		}
		if named || len(line.labels) == 0 && strings.HasSuffix(q.Expr, "or on() vector(0)") {
			return true
		}
	}
	return false
}
