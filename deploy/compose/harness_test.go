package compose_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/lockstep/internal/local/variables"
	"example.com/lockstep/internal/porttest"
)

const (
	// asked is the variable that requests these tests: they take minutes, and images.
	asked = "LOCKSTEP_COMPOSE"
	// patience bounds every wait here, commandTime one command of the engine: a
	// build on an empty cache is the longest.
	patience    = 3 * time.Minute
	commandTime = 15 * time.Minute
	callTime    = 20 * time.Second
	glance      = 200 * time.Millisecond
)

func TestMain(m *testing.M) {
	variables.Forget()
	m.Run()
}

// stack is one run of docker-compose.yml. Other containers may run in the same engine.
type stack struct {
	project        string
	env            []string
	video, catalog string // URLs
	// URLs of the profile observability.
	prometheus, grafana, jaeger string
}

func newStack(t *testing.T) *stack {
	t.Helper()
	if os.Getenv(asked) == "" {
		t.Skip("needs a container engine and some minutes: make compose-check")
	}
	for _, check := range [][]string{{"info"}, {"compose", "version"}} {
		if out, err := exec.CommandContext(t.Context(), "docker", check...).CombinedOutput(); err != nil {
			t.Fatalf("install Docker with its compose plugin, and start it: docker %s: %v: %s", strings.Join(check, " "), err, out)
		}
	}
	s := &stack{project: "lockstep-check-" + strconv.Itoa(os.Getpid())}
	url := map[string]string{}
	for _, variable := range []string{"VIDEO_PORT", "CATALOG_PORT", "PUBSUB_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT", "JAEGER_PORT"} {
		port := strconv.Itoa(porttest.Port(t))
		s.env = append(s.env, variable+"="+port)
		url[variable] = "http://127.0.0.1:" + port
	}
	if socket, ok := strings.CutPrefix(os.Getenv("DOCKER_HOST"), "unix://"); ok {
		s.env = append(s.env, "DOCKER_SOCKET="+socket)
	}
	s.video, s.catalog = url["VIDEO_PORT"], url["CATALOG_PORT"]
	s.prometheus, s.grafana, s.jaeger = url["PROMETHEUS_PORT"], url["GRAFANA_PORT"], url["JAEGER_PORT"]
	// Two functions: the stack goes also when its logs cannot be had.
	t.Cleanup(func() { s.compose(t, "--profile", "watchdog", "--profile", "observability", "down", "--volumes") })
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.compose(t, "ps", "--all"), s.compose(t, "logs", "--no-color", "--tail", "40"))
		}
	})
	return s
}

// up starts everything, and waits until it is healthy.
func (s *stack) up(t *testing.T) {
	t.Helper()
	start := time.Now()
	s.compose(t, "up", "--detach", "--wait", "--wait-timeout", strconv.Itoa(int(healthyWithin.Seconds())))
	t.Logf("healthy after %.1f s", time.Since(start).Seconds())
}

func (s *stack) compose(t *testing.T, args ...string) string {
	t.Helper()
	return s.docker(t, append([]string{"compose", "--project-directory", "../..", "--project-name", s.project}, args...)...)
}

// docker runs the command, which must succeed, and returns its output.
func (s *stack) docker(t *testing.T, args ...string) string {
	t.Helper()
	cmd := s.command(t, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("docker %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

func (s *stack) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	// The test's own context would not do: the clean-up begins when it ends.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), commandTime)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Env = append(os.Environ(), s.env...)
	return cmd
}

func (s *stack) container(t *testing.T, service string) string {
	t.Helper()
	return s.compose(t, "ps", "--all", "--quiet", service)
}

func (s *stack) restarts(t *testing.T, service string) int {
	t.Helper()
	n, err := strconv.Atoi(s.docker(t, "inspect", "--format", "{{.RestartCount}}", s.container(t, service)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// crash kills the service's process as the kernel would, without the engine's
// knowledge: from a container that sees the engine's processes, which may run on
// another machine than this test.
func (s *stack) crash(t *testing.T, service string) {
	t.Helper()
	pid := s.docker(t, "inspect", "--format", "{{.State.Pid}}", s.container(t, service))
	shell := s.docker(t, "inspect", "--format", "{{.Config.Image}}", s.container(t, "postgres"))
	s.docker(t, "run", "--rm", "--pid=host", "--user=0", "--cap-add=KILL", "--entrypoint=/bin/sh", shell, "-c", "kill -9 "+pid)
}

func (*stack) eventually(t *testing.T, what string, holds func() error) {
	t.Helper()
	tick := time.NewTicker(glance)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		err := holds()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
	}
}

// document is a video as both services return it.
type document struct {
	ID      string `json:"video_id"`
	Title   string `json:"title"`
	Version int64  `json:"version"`
	Token   string `json:"consistency_token"`
	Source  string `json:"source"`
}

func call(t *testing.T, method, url string, body io.Reader, header http.Header) (code int, d document, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return 0, d, err
	}
	maps.Copy(request.Header, header)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, d, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && json.Unmarshal(answer, &d) != nil {
		err = errors.New("no JSON: " + string(answer))
	}
	if response.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s: %s", response.Status, answer)
	}
	return response.StatusCode, d, err
}
