package compose_test

import (
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
