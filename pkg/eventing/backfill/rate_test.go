package backfill

import (
	"testing"
	"time"
)

func TestPauseAfter(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rows       int64
		perSecond  int
		took, want time.Duration
	}{
		"no limit":             {500, 0, 0, 0},
		"the rest of the time": {500, 1000, 100 * time.Millisecond, 400 * time.Millisecond},
		"slower by itself":     {500, 1000, time.Second, 0},
		"the slowest":          {500, 1, time.Second, 499 * time.Second},
		"an empty page":        {0, 1, 0, 0},
	} {
		if got := pauseAfter(tc.rows, tc.perSecond, tc.took); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
