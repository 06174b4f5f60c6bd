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

	"example.com/lockstep/internal/local/process"
	"example.com/lockstep/internal/monitoring"
	"example.com/lockstep/internal/porttest"
)

// prometheus is a running Prometheus that scrapes a world.
type prometheus struct{ addr string }

// configure copies the files of deploy/observability for Prometheus to dir. They lead to this
// world's services, and Prometheus looks more often.
func (w *world) configure(t *testing.T, dir string) (config string) {
	t.Helper()
	changes := map[string]string{
		`"video:8080"`: fmt.Sprintf("%q", w.videoAddr), `"catalog:8080"`: fmt.Sprintf("%q", w.catalogAddr),
		"scrape_interval: 5s": "scrape_interval: 1s", "scrape_timeout: 4s": "scrape_timeout: 1s",
	}
	for _, name := range []string{"rules.yaml", "prometheus.yml"} {
		text, err := os.ReadFile("../deploy/observability/" + name)
		if err != nil {
			t.Fatal(err)
		}
		changed := string(text)
		if name == "prometheus.yml" {
			for old, now := range changes {
				if !strings.Contains(changed, old) {
					t.Fatalf("%s has no %s", name, old)
				}
				changed = strings.Replace(changed, old, now, 1)
			}
		}
		config = filepath.Join(dir, name)
		if err := os.WriteFile(config, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return config
}

// startPrometheus runs Debian's prometheus over this world.
func startPrometheus(t *testing.T, w *world) *prometheus {
	t.Helper()
	dir := t.TempDir()
	p := &prometheus{addr: porttest.Addr(t)}
	child, err := process.Start(exec.Command("prometheus", "--config.file="+w.configure(t, dir),
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
