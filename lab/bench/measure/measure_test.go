package measure

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
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// side measures one figure; its values are those of its runs, in turn.
func side(log *[]string, name string, values ...float64) Measurement {
	return Measurement{
		Figures: []Figure{{Name: name, Unit: "x/s", Note: "steady"}},
		Run: func(context.Context, Size) (Reading, error) {
			*log = append(*log, name)
			v := values[0]
			values = values[1:]
			return Reading{[]float64{v}, fmt.Sprintf("run of %v", v)}, nil
		},
	}
}

func failing(log *[]string, name string, err error) Measurement {
	m := side(log, name)
	m.Run = func(context.Context, Size) (Reading, error) {
		*log = append(*log, name)
		return Reading{}, err
	}
	return m
}

// take runs the series and returns the content of the JSON file.
func take(t *testing.T, only string, all ...Series) (results []map[string]any, stdout string, err error) {
	t.Helper()
	return takeUntil(t.Context(), t, only, all...)
}

func takeUntil(ctx context.Context, t *testing.T, only string, all ...Series) (results []map[string]any, stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	b := Bench{Only: regexp.MustCompile(only), Size: Normal, Stdout: &out, Stderr: io.Discard}
	name := filepath.Join(t.TempDir(), "build", "bench.json")
	err = b.Run(ctx, all, name)
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
	// 6/4, but in each turn the value of a is twice that of b.
	results, stdout, err := take(t, "", Series{
		Title:        "Some rates",
		Measurements: []Measurement{side(&log, "a", 6, 20, 4), side(&log, "b", 3, 10, 4)},
		Derived:      []Derived{Ratio("a_vs_b", "a", "b", "2 wanted")},
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
		Series{
			Title:        "first",
			Measurements: []Measurement{failing(&log, "bad", broken), side(&log, "good", 1, 2, 3)},
			Derived:      []Derived{Ratio("bad_vs_good", "bad", "good", "")},
		},
		Series{Title: "second", Measurements: []Measurement{side(&log, "zero", 1, 0), side(&log, "late", 5, 5, 5)}},
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
		Series{Title: "first", Measurements: []Measurement{
			failing(&log, "rival", fmt.Errorf("%w: it is not installed", ErrMissing)), side(&log, "ours", 1, 2, 3),
		}},
		Series{Title: "large", From: Full, Measurements: []Measurement{side(&log, "large")}},
		Series{Title: "long", Long: true, Measurements: []Measurement{side(&log, "long")}},
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
	second.Run = func(ctx context.Context, _ Size) (Reading, error) {
		interrupt()
		return Reading{}, ctx.Err()
	}
	results, _, err := takeUntil(ctx, t, "",
		Series{Title: "first", Measurements: []Measurement{side(&log, "first", 1, 2, 3)}},
		Series{Title: "second", Measurements: []Measurement{second}},
		Series{Title: "third", Measurements: []Measurement{side(&log, "third")}},
	)
	if err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error = %v, want one that says what happened", err)
	}
	if got, want := names(results), []string{"first"}; !slices.Equal(got, want) {
		t.Errorf("figures = %v, want %v", got, want)
	}
}

func TestNoResultsAreAnEmptyArray(t *testing.T) {
	t.Parallel()
	results, _, err := take(t, "", Series{Measurements: []Measurement{failing(new([]string), "rival", ErrMissing)}})
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

func TestPercentiles(t *testing.T) {
	t.Parallel()
	took := make([]time.Duration, 200)
	for i := range took {
		took[i] = time.Duration(200-i) * time.Millisecond
	}
	if got, want := Percentiles(took, 50, 99, 100), []float64{100, 198, 200}; !slices.Equal(got, want) {
		t.Errorf("percentiles 50, 99 and 100 of 200 ms down to 1 = %v, want %v", got, want)
	}
	if got, want := Percentiles(make([]time.Duration, 1), 50), []float64{0.001}; !slices.Equal(got, want) {
		t.Errorf("percentile 50 of one that took no time = %v, want %v", got, want)
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
			Series{
				Title:        "first",
				Measurements: []Measurement{side(&log, "a", 2, 2, 2), side(&log, "b", 1, 1, 1), side(&log, "c", 1, 1, 1)},
				Derived: []Derived{Ratio("a_vs_b", "a", "b", ""), {
					Figure: Figure{Name: "square", Unit: "x"}, From: []string{"a_vs_b"},
					Compute: func(in []float64) float64 { return in[0] * in[0] },
				}},
			},
			Series{Title: "second", Measurements: []Measurement{side(&log, "d", 1, 1, 1)}},
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

func TestFaultsMayBeZero(t *testing.T) {
	t.Parallel()
	var log []string
	faults := side(&log, "faults", 0, 0, 0)
	faults.Figures[0].MayBeZero = true
	results, _, err := take(t, "", Series{Measurements: []Measurement{faults}})
	if got := names(results); err != nil || !slices.Equal(got, []string{"faults"}) {
		t.Errorf("figures = %v, %v; want that of no fault", got, err)
	}
}

func TestRunListsTheTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := Measurement{Figures: []Figure{{Name: "a"}}, Run: func(context.Context, Size) (Reading, error) {
			<-time.After(30 * time.Second)
			return Reading{Values: []float64{1}}, nil
		}}
		_, stdout, err := take(t, "", Series{Title: "slow", Measurements: []Measurement{slow}})
		if err != nil || !strings.Contains(stdout, "### 1m30s in all\n") || !strings.Contains(stdout, "| slow   | 90 |\n") {
			t.Errorf("the output has not 1m30s in all and 90 s of the series, %v:\n%s", err, stdout)
		}
	})
}

func TestRunSaysThatItWasNoisy(t *testing.T) {
	t.Parallel()
	for want, second := range map[string]float64{"Spread: 0 of 2 figures": 110, "Spread: 1 of 2 figures": 150} {
		var log []string
		_, stdout, err := take(t, "", Series{Measurements: []Measurement{side(&log, "a", 100, second, 100), side(&log, "b", 5, 5, 5)}})
		if err != nil || !strings.Contains(stdout, want) || strings.Contains(stdout, "noisy") != (second == 150) {
			t.Errorf("the output has not %q, or says wrongly that the machine was noisy: %v\n%s", want, err, stdout)
		}
	}
}
