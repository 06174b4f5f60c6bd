package serve_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/serve"
	pair "example.com/lockstep/pkg/client"
)

var failures = regexp.MustCompile(`"message":"request failed".*"logging[.]googleapis[.]com/trace":"[^"]*/([0-9a-f]{32})"`)

// A failure names the trace of its log line. A client's own fault names none.
func TestAFailureNamesItsTrace(t *testing.T) { //nolint:paralleltest // it sets the process's telemetry
	setUpTelemetry(t)
	for name, test := range map[string]struct {
		err    error
		logged bool
	}{
		"internal":    {errors.New("boom"), true},
		"unavailable": {problem.New(problem.CodeUnavailable, "", "Later."), true},
		"timeout":     {problem.New(problem.CodeTimeout, "", "Too late."), true},
		"stale":       {problem.New(problem.CodeStale, "", "Another version."), false},
	} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // as above
			logs := &lockedBuffer{}
			s := inProduction(t, logs, 0)
			s.grpc = serve.NewGRPC(s.log, s.guard)
			s.rest.Get("/fail", serve.Handler(s.log, func(http.ResponseWriter, *http.Request) error { return test.err }))
			echo(func(context.Context, string) (string, error) { return "", test.err }).register(s.grpc)
			_, err := say(t.Context(), dial(t, s.start(t)), "hello")
			answer := httptest.NewRecorder()
			s.rest.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/fail", nil))
			var document struct {
				TraceID string `json:"trace_id"`
			}
			if err := json.Unmarshal(answer.Body.Bytes(), &document); err != nil {
				t.Fatal(err)
			}
			got := [2]string{pair.TraceID(err), document.TraceID}
			var want [2]string
			lines := failures.FindAllStringSubmatch(logs.String(), -1)
			if test.logged && len(lines) != 2 || !test.logged && len(lines) != 0 {
				t.Fatalf("%d lines of failures in\n%s", len(lines), logs.String())
			}
			for i, line := range lines {
				want[i] = line[1]
			}
			if got != want {
				t.Errorf("traces %q, want those of the log lines, %q", got, want)
			}
		})
	}
}
