package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/lab/bench/peers"
	"example.com/lockstep/lab/bench/reads"
	"example.com/lockstep/lab/bench/report"
	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/lab/bench/telemetry"
)

// TestMain lets the test binary run as the server process that the command
// starts from its own binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{rig.BrokerCommand, reads.Command, peers.Command, telemetry.Command}, os.Args[1]) {
		main()
	}
	m.Run()
}

func TestNamesAreUnique(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, s := range table(new(rig.Postgres)) {
		for _, f := range s.Figures() {
			if seen[f.Name] {
				t.Errorf("%s is there twice", f.Name)
			}
			seen[f.Name] = true
		}
	}
}

// figureName matches names of figures in running text and in the cells of a
// table.
var figureName = regexp.MustCompile("[`|] ?((?:pair|localpubsub|relay|write|claim|inbox|visible|read|telemetry|start|peers|tenant)\\.[a-z0-9_]+)[` ]")

func TestFiguresOfTheDocsAreMeasured(t *testing.T) {
	t.Parallel()
	measured := make(map[string]bool)
	for _, s := range table(new(rig.Postgres)) {
		for _, f := range s.Figures() {
			measured[f.Name] = true
		}
	}
	for _, file := range []string{"performance.md", "performance-run.md", "performance-notes.md"} {
		text, err := os.ReadFile("../../docs/" + file)
		if err != nil {
			t.Fatal(err)
		}
		names := figureName.FindAllSubmatch(text, -1)
		if len(names) == 0 {
			t.Errorf("docs/%s names no figure", file)
		}
		for _, match := range names {
			if name := string(match[1]); !measured[name] {
				t.Errorf("docs/%s names %s, which no series measures", file, name)
			}
		}
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args       []string
		code       int
		out, error string
	}{
		{[]string{"--help"}, 0, "Usage", ""},
		{[]string{"--quick", "--full"}, 2, "", "exclude each other"},
		{[]string{"--only", "("}, 2, "", "--only"},
		{[]string{"--only", "no.such.figure"}, 2, "", "matches no figure"},
		{[]string{"everything"}, 2, "", `unexpected argument "everything"`},
		{[]string{"--slow"}, 2, "", "-slow"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), test.args, &stdout, &stderr)
		if code != test.code || !strings.Contains(stdout.String(), test.out) || !strings.Contains(stderr.String(), test.error) {
			t.Errorf("bench %q = %d\n%s%s", test.args, code, &stdout, &stderr)
		}
	}
}

// TestAgainstServers measures real figures of the servers that need no
// installation.
func TestAgainstServers(t *testing.T) {
	t.Chdir(t.TempDir())
	var stdout, stderr bytes.Buffer
	args := []string{"--quick", "--only", `localpubsub\.(publish_nokey|latency_p99_ms_pstest|receive_ordered_100|receive_100keys_pstest)$`}
	if code := run(t.Context(), args, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d:\n%s%s", code, &stdout, &stderr)
	}
	encoded, err := os.ReadFile(jsonFile)
	if err != nil {
		t.Fatal(err)
	}
	var results []report.Result
	if err := json.Unmarshal(encoded, &results); err != nil {
		t.Fatal(err)
	}
	units := map[string]string{}
	for _, r := range results {
		if units[r.Name] = r.Unit; r.Value <= 0 || r.Runs != 1 {
			t.Errorf("%+v, want a positive value of one run", r)
		}
	}
	want := map[string]string{
		"localpubsub.publish_nokey":          "msg/s",
		"localpubsub.receive_ordered_100":    "msg/s",
		"localpubsub.receive_100keys_pstest": "msg/s",
		"localpubsub.latency_p50_ms_pstest":  "ms", // measured together with the next
		"localpubsub.latency_p99_ms_pstest":  "ms",
	}
	if diff := cmp.Diff(want, units); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
}
