package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/cmd/bench/report"
)

// TestMain makes the test binary the server that the command starts itself as.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == serveCommand || os.Args[1] == catalogCommand) {
		main()
	}
	os.Exit(m.Run())
}

// side measures one figure; its values are those of its runs, in turn.
func side(log *[]string, name string, values ...float64) measurement {
	return measurement{
		figures: []figure{{name: name, unit: "x/s", note: "steady"}},
		run: func(context.Context, size) (reading, error) {
			*log = append(*log, name)
			v := values[0]
			values = values[1:]
			return reading{[]float64{v}, fmt.Sprintf("run of %v", v)}, nil
		},
	}
}

func failing(log *[]string, name string, err error) measurement {
	m := side(log, name)
	m.run = func(context.Context, size) (reading, error) {
		*log = append(*log, name)
		return reading{}, err
	}
	return m
}

// take runs the series and returns what the JSON file holds.
func take(t *testing.T, only string, all ...series) (results []map[string]any, stdout string, err error) {
	t.Helper()
	return takeUntil(t.Context(), t, only, all...)
}

func takeUntil(ctx context.Context, t *testing.T, only string, all ...series) (results []map[string]any, stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	b := bench{only: regexp.MustCompile(only), size: normal, stdout: &out, stderr: io.Discard}
	name := filepath.Join(t.TempDir(), "build", "bench.json")
	err = b.run(ctx, all, name)
	encoded, readErr := os.ReadFile(name)
	if readErr != nil {
		return nil, out.String(), err
	}
	if err := json.Unmarshal(encoded, &results); err != nil {
		t.Fatal(err)
	}
	return results, out.String(), err
}

func TestRunsAlternateAndRatiosAreOfNeighbours(t *testing.T) {
	t.Parallel()
	var log []string
	// The machine is twice as fast in the second turn: the medians' quotient is
	// 6/4, but in each turn a does twice what b does.
	results, stdout, err := take(t, "", series{
		title:        "Some rates",
		measurements: []measurement{side(&log, "a", 6, 20, 4), side(&log, "b", 3, 10, 4)},
		derived:      []derived{ratio("a_vs_b", "a", "b", "2 wanted")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "a", "b", "a", "b"}; !slices.Equal(log, want) {
		t.Errorf("runs = %v, want %v", log, want)
	}
	want := []map[string]any{
		{"name": "a", "value": 6., "unit": "x/s", "ratio_to": "", "runs": 3., "note": "steady; run of 4"},
		{"name": "b", "value": 4., "unit": "x/s", "ratio_to": "", "runs": 3., "note": "steady; run of 4"},
		{"name": "a_vs_b", "value": 2., "unit": "x", "ratio_to": "b", "runs": 3., "note": "2 wanted"},
	}
	if diff := cmp.Diff(want, results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if !strings.Contains(stdout, "### Some rates\n") || !strings.Contains(stdout, "| a_vs_b |      2 | x    | 1 to 2 ") {
		t.Errorf("table:\n%s", stdout)
	}
}

func TestOthersGoOnWhenOneFails(t *testing.T) {
	t.Parallel()
	var log []string
	broken := errors.New("no such thing")
	results, stdout, err := take(t, "",
		series{
			title:        "first",
			measurements: []measurement{failing(&log, "bad", broken), side(&log, "good", 1, 2, 3)},
			derived:      []derived{ratio("bad_vs_good", "bad", "good", "")},
		},
		series{title: "second", measurements: []measurement{side(&log, "zero", 1, 0), side(&log, "late", 5, 5, 5)}},
	)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "bad: ") || !strings.Contains(err.Error(), "zero = 0") {
		t.Errorf("error = %v, want what failed", err)
	}
	if got, want := names(results), []string{"good", "late"}; !slices.Equal(got, want) {
		t.Errorf("figures = %v, want %v", got, want)
	}
	if n := strings.Count(strings.Join(log, " "), "bad"); n != 1 {
		t.Errorf("what failed was run %d times, want once", n)
	}
	if !strings.Contains(stdout, "- bad failed: no such thing\n") {
		t.Errorf("tables do not say what failed:\n%s", stdout)
	}
}

func TestWhatIsMissingIsLeftOut(t *testing.T) {
	t.Parallel()
	var log []string
	results, stdout, err := take(t, "",
		series{title: "first", measurements: []measurement{
			failing(&log, "rival", fmt.Errorf("%w: it is not installed", errMissing)), side(&log, "ours", 1, 2, 3),
		}},
		series{title: "large", from: full, measurements: []measurement{side(&log, "large")}},
	)
	if err != nil {
		t.Errorf("error = %v, want none", err)
	}
	if got, want := names(results), []string{"ours"}; !slices.Equal(got, want) {
		t.Errorf("figures = %v, want %v", got, want)
	}
	for _, want := range []string{"- rival: left out: it is not installed\n", "- left out: not part of this size\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("tables do not hold %q:\n%s", want, stdout)
		}
	}
}

func TestAnInterruptedRunReportsWhatItHas(t *testing.T) {
	t.Parallel()
	var log []string
	ctx, interrupt := context.WithCancel(t.Context())
	second := failing(&log, "second", context.Canceled)
	second.run = func(ctx context.Context, _ size) (reading, error) {
		interrupt()
		return reading{}, ctx.Err()
	}
	results, _, err := takeUntil(ctx, t, "",
		series{title: "first", measurements: []measurement{side(&log, "first", 1, 2, 3)}},
		series{title: "second", measurements: []measurement{second}},
		series{title: "third", measurements: []measurement{side(&log, "third")}},
	)
	if err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error = %v, want one that says what happened", err)
	}
	if got, want := names(results), []string{"first"}; !slices.Equal(got, want) {
		t.Errorf("figures = %v, want %v", got, want)
	}
}

func TestNothingIsAnEmptyArray(t *testing.T) {
	t.Parallel()
	results, _, err := take(t, "", series{measurements: []measurement{failing(new([]string), "rival", errMissing)}})
	if err != nil || results == nil || len(results) > 0 {
		t.Errorf("results = %v, %v; want an empty array", results, err)
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		values []float64
		want   float64
	}{{[]float64{7}, 7}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 9, 2}, 3}} {
		if got := median(test.values); got != test.want {
			t.Errorf("median(%v) = %v, want %v", test.values, got, test.want)
		}
	}
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	values := make([]time.Duration, 200)
	for i := range values {
		values[i] = time.Duration(i + 1)
	}
	for p, want := range map[int]time.Duration{50: 100, 99: 198, 100: 200} {
		if got := percentile(values, p); got != want {
			t.Errorf("percentile %d of 1..200 = %d, want %d", p, got, want)
		}
	}
	if got := percentile(values[:1], 50); got != 1 {
		t.Errorf("percentile 50 of one value = %d, want it", got)
	}
}

func TestOnlyTakesWhatItNeeds(t *testing.T) {
	t.Parallel()
	for only, want := range map[string][]string{
		"^b$":     {"b"},
		"a_vs_b":  {"a", "b", "a_vs_b"},
		"square":  {"a", "b", "a_vs_b", "square"},
		"^(c|d)$": {"c", "d"},
	} {
		var log []string
		results, _, err := take(t, only,
			series{
				title:        "first",
				measurements: []measurement{side(&log, "a", 2, 2, 2), side(&log, "b", 1, 1, 1), side(&log, "c", 1, 1, 1)},
				derived: []derived{ratio("a_vs_b", "a", "b", ""), {
					figure: figure{name: "square", unit: "x"}, from: []string{"a_vs_b"},
					compute: func(in []float64) float64 { return in[0] * in[0] },
				}},
			},
			series{title: "second", measurements: []measurement{side(&log, "d", 1, 1, 1)}},
		)
		if got := names(results); err != nil || !slices.Equal(got, want) {
			t.Errorf("--only %q = %v, %v; want %v", only, got, err, want)
		}
	}
}

func names(results []map[string]any) (names []string) {
	for _, r := range results {
		names = append(names, r["name"].(string))
	}
	return names
}

func TestNamesAreUnique(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, s := range table(new(postgres)) {
		for _, f := range s.figures() {
			if seen[f.Name] {
				t.Errorf("%s is there twice", f.Name)
			}
			seen[f.Name] = true
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

// TestAgainstServers takes real figures of the servers that need nothing.
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
		"localpubsub.latency_p50_ms_pstest":  "ms", // measured along with the next
		"localpubsub.latency_p99_ms_pstest":  "ms",
	}
	if diff := cmp.Diff(want, units); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
}
