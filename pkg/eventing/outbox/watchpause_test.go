package outbox

import (
	"testing"
	"time"
)

func TestReadingsOfTheBacklogAreSharedByTheRelays(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		took   time.Duration
		relays int
		failed bool
		want   time.Duration
	}{
		{time.Millisecond, 1, false, 2 * time.Second},
		{time.Millisecond, 40, false, 4 * time.Second},
		{50 * time.Millisecond, 1, false, 5 * time.Second},
		{50 * time.Millisecond, 4, false, 20 * time.Second},
		{50 * time.Millisecond, 100, false, 30 * time.Second},
		{time.Minute, 1, false, 30 * time.Second},
		{time.Minute, 4, true, 2 * time.Second},
	} {
		reading := backlogReading{failed: tc.failed}
		if got := reading.pause(tc.took, tc.relays); got != tc.want {
			t.Errorf("%d relays, a reading of %s (failed: %t): pause %s, want %s", tc.relays, tc.took, tc.failed, got, tc.want)
		}
	}
}
