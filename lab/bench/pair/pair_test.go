package pair

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// of is a point with a p99, and refused of a thousand units without a fresh read.
func of(rate, p99 float64, refused int) point {
	answers := map[int]int{http.StatusOK: 1000 - refused, http.StatusTooManyRequests: refused}
	return point{rate: rate, served: rate, p50: p99 / 4, p99: p99, answers: answers, offered: 1000}
}

func TestKneeIsTheHighestLoadThatIsBorne(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		points []point
		want   float64
	}{
		"a slow point between good ones":   {[]point{of(100, 20, 0), of(200, 150, 0), of(300, 100, 1), of(400, 101, 0)}, 300},
		"more errors than one of thousand": {[]point{of(100, 20, 0), of(200, 20, 2)}, 100},
		"nothing is fresh":                 {[]point{of(100, 0, 1000)}, 0},
	} {
		if got := (curve{points: test.points}).knee().rate; got != test.want {
			t.Errorf("%s: knee = %v, want %v", name, got, test.want)
		}
	}
}

func TestOtherErrorsAreCountedBeyondTheKnee(t *testing.T) {
	t.Parallel()
	beyond := of(300, 500, 10)
	beyond.answers[http.StatusInternalServerError], beyond.answers[broken] = 2, 3
	below := of(100, 20, 0)
	below.answers[http.StatusConflict] = 1
	c := curve{points: []point{below, of(200, 30, 0), beyond}}
	if got := c.otherErrors(); got != 5 {
		t.Errorf("other errors = %d, want 5", got)
	}
	if got, want := c.note(), "beyond the knee: 3 x 0, 990 x 200, 10 x 429, 2 x 500"; got != want {
		t.Errorf("note = %q, want %q", got, want)
	}
}

// TestCurve has a system that serves 100 units a second at most, one after the other, and
// refuses those that would wait for half a second.
func TestCurve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turn := make(chan struct{}, 1)
		c, err := take(t.Context(), func(ctx context.Context) (int, error) {
			select {
			case turn <- struct{}{}:
			case <-time.After(time.Second / 2):
				return http.StatusServiceUnavailable, ctx.Err()
			}
			defer func() { <-turn }()
			<-time.After(10 * time.Millisecond)
			return http.StatusOK, ctx.Err()
		}, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if knee := c.knee(); knee.rate < 80 || knee.rate > 110 || knee.p99 > wantedP99 {
			t.Errorf("knee = %.0f a second, p99 %.0f ms; want about 100, and 100 or less", knee.rate, knee.p99)
		}
		if last := c.points[len(c.points)-1]; last.rate < 250 || last.refused() < 100 || c.otherErrors() != 0 {
			t.Errorf("the last point %.0f a second, refused %.0f, others %d; want three times the knee, most refused, 0",
				last.rate, last.refused(), c.otherErrors())
		}
		if c.after.p99 != 10 || c.recovery != 0 {
			t.Errorf("after the overload p99 %v ms, slow until %s; want 10 and 0s", c.after.p99, c.recovery)
		}
	})
}

// TestKneeBelowTheSteps has a system that is fast only while little is asked of it.
func TestKneeBelowTheSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var under atomic.Int64
		c, err := take(t.Context(), func(ctx context.Context) (int, error) {
			defer under.Add(-1)
			if under.Add(1) > 1 {
				<-time.After(200 * time.Millisecond)
			}
			<-time.After(50 * time.Millisecond)
			return http.StatusOK, ctx.Err()
		}, 10*time.Second)
		if err != nil || c.knee().rate == 0 || c.knee().rate > 20 || c.knee().rate >= c.points[0].rate {
			t.Errorf("knee = %.1f a second, %v; want one below 20 and below the first step of %.1f", c.knee().rate, err, c.points[0].rate)
		}
	})
}

func TestErrorEndsTheCurve(t *testing.T) {
	t.Parallel()
	ended := errors.New("ended")
	if _, err := take(t.Context(), func(context.Context) (int, error) { return broken, ended }, time.Second); !errors.Is(err, ended) {
		t.Errorf("err = %v, want what a unit returned", err)
	}
}

func TestPictureIsOfTheMedianRun(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "build", "pair.svg")
	var drawn curves
	for _, knee := range []float64{1400, 1000, 1200} {
		if err := drawn.draw(curve{points: []point{of(knee, 80, 0), of(2*knee, 2500, 400), of(3*knee, 0, 1000)}}, file); err != nil {
			t.Fatal(err)
		}
	}
	picture, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if texts := textsOf(t, string(picture)); !slices.Contains(texts, "the knee: 1,200 a second, p99 80 ms") ||
		!slices.Contains(texts, "offered load, videos a second") || !slices.Contains(texts, "time, ms") ||
		!slices.Contains(texts, "p99 at 2,400 a second: 2,500") || !slices.Contains(texts, "429, 503 at 3,600 a second: 3,600") {
		t.Errorf("the picture has the texts %q; want the knee of the median run, both axes, each point", texts)
	}
	if strings.Contains(string(picture), "NaN") || strings.Contains(string(picture), "Inf") {
		t.Error("the picture has a coordinate that is no number")
	}
}

// textsOf are the texts of a well-formed picture.
func textsOf(t *testing.T, picture string) (texts []string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			texts = append(texts, string(text))
		}
	}
}
