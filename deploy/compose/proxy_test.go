package compose_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// called finds the addresses that a service is given, except Postgres's, to which no client takes a proxy.
	called = regexp.MustCompile(`(?:PUBSUB_EMULATOR_HOST|VIDEO_SERVICE_ADDR): ([a-z]+):\d+\n`)
	direct = regexp.MustCompile(`&project\n(?:\s+\S.*\n)*?\s+NO_PROXY: (.*)\n`)
)

// TestPartsAreCalledDirectly: behind a proxy, Docker names it to each container, and gRPC would
// send the calls to another container there.
func TestPartsAreCalledDirectly(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var hosts []string
	if m := direct.FindSubmatch(text); m != nil {
		hosts = strings.Split(string(m[1]), ",")
	}
	calls := called.FindAllSubmatch(text, -1)
	if len(calls) < 2 {
		t.Errorf("only %d addresses were found", len(calls))
	}
	for _, m := range calls {
		if !slices.Contains(hosts, string(m[1])) {
			t.Errorf("a proxy may get the calls to %s: NO_PROXY has %q", m[1], hosts)
		}
	}
}
