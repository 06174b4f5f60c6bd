package compose_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	serviceName = regexp.MustCompile(`(?m)^ {2}([a-z-]+):$`)
	mounted     = regexp.MustCompile(`(?:- |\[")(\./deploy/\S+?):\S+:ro`)
	address     = regexp.MustCompile(`\b(video|catalog|collector|jaeger|prometheus|grafana):(\d+)`)
)

// ports are those on which the services listen within their network.
var ports = map[string]string{
	"video": "8080", "catalog": "8080", "jaeger": "4317 16686", "prometheus": "9090", "collector": "4317",
}

// TestObservabilityIsWired compares the files of deploy/observability with docker-compose.yml,
// without a container engine: each file that is mounted exists, each file is mounted, and each
// address in one is that of a service.
func TestObservabilityIsWired(t *testing.T) {
	t.Parallel()
	const root = "../../"
	content, err := os.ReadFile(root + "docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	var services []string
	for _, m := range serviceName.FindAllStringSubmatch(text, -1) {
		services = append(services, m[1])
	}
	var seen []string
	for _, m := range mounted.FindAllStringSubmatch(text, -1) {
		err := filepath.WalkDir(root+m[1], func(name string, entry os.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				seen = append(seen, filepath.Clean(name))
			}
			return err
		})
		if err != nil {
			t.Errorf("docker-compose.yml mounts %s: %v", m[1], err)
		}
	}
	err = filepath.WalkDir(root+"deploy/observability", func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if !slices.Contains(seen, filepath.Clean(name)) {
			t.Errorf("%s is in no container", name)
		}
		content, err := os.ReadFile(name)
		for _, m := range address.FindAllStringSubmatch(string(content), -1) {
			if !slices.Contains(services, m[1]) || !slices.Contains(strings.Fields(ports[m[1]]), m[2]) {
				t.Errorf("%s names %s, where nothing listens", name, m[0])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPrometheusTakesItsConfiguration lets Prometheus read the file, and the rules that it
// names.
func TestPrometheusTakesItsConfiguration(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is missing: it is in Debian's package prometheus")
	}
	out, err := exec.CommandContext(t.Context(), promtool, "check", "config", "../observability/prometheus.yml").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "1 rule files found") {
		t.Errorf("%v\n%s", err, out)
	}
}

// observability runs the profile as the README says: Prometheus reads both services, Grafana has
// the boards, and the trace of a write arrives in Jaeger.
func (s *stack) observability(t *testing.T) {
	if os.Getenv("STANDINS") != "" {
		t.Skip("the profile's images have no stand-ins")
	}
	before := s.env
	s.env = append(slices.Clone(before), "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://collector:4317")
	s.compose(t, "--profile", "observability", "up", "--detach", "--wait")
	s.flows(t, "the start of the profile")
	for url, wanted := range map[string][]string{
		s.prometheus + "/api/v1/query?query=count(up==1)": {`"2"`},
		s.grafana + "/api/search?tag=lockstep":            {"lockstep-overview", "lockstep-video", "lockstep-catalog", "lockstep-process"},
		s.jaeger + "/api/v3/services":                     {`"video"`, `"catalog"`},
	} {
		s.eventually(t, url+" answers", func() error { return says(t, url, wanted) })
	}
	s.env = before
	s.compose(t, "--profile", "observability", "rm", "--stop", "--force", "collector", "jaeger", "prometheus", "grafana")
	s.up(t)
}

// says returns an error unless the answer has all texts.
func says(t *testing.T, url string, wanted []string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	for _, text := range wanted {
		if !strings.Contains(string(answer), text) {
			return fmt.Errorf("%s without %s: %.200s", response.Status, text, answer)
		}
	}
	return nil
}
