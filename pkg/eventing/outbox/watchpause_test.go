package outbox

import (
	"testing"
	"time"
)

func TestReadingsOfTheBacklogAreSharedByTheRelays(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		took     time.Duration
		relays   int
		failures int
		want     time.Duration
	}{
		{time.Millisecond, 1, 0, 2 * time.Second},
		{time.Millisecond, 40, 0, 4 * time.Second},
		{50 * time.Millisecond, 1, 0, 5 * time.Second},
		{50 * time.Millisecond, 4, 0, 20 * time.Second},
		{50 * time.Millisecond, 100, 0, 30 * time.Second},
		{time.Minute, 1, 0, 30 * time.Second},
		{10 * time.Second, 4, 1, 2 * time.Second},
		{10 * time.Second, 4, 2, 30 * time.Second},
		{time.Millisecond, 4, 9, 2 * time.Second},
	} {
		reading := backlogReading{failures: tc.failures}
		if got := reading.pause(tc.took, tc.relays); got != tc.want {
			t.Errorf("%d relays, a reading of %s (%d failures): pause %s, want %s", tc.relays, tc.took, tc.failures, got, tc.want)
		}
	}
}
