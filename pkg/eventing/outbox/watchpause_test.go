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
		want   time.Duration
	}{
		{time.Millisecond, 1, 2 * time.Second},
		{time.Millisecond, 40, 4 * time.Second},
		{50 * time.Millisecond, 1, 5 * time.Second},
		{50 * time.Millisecond, 4, 20 * time.Second},
		{50 * time.Millisecond, 100, 30 * time.Second},
		{time.Minute, 1, 30 * time.Second},
	} {
		if got := watchPause(tc.took, tc.relays); got != tc.want {
			t.Errorf("%d relays, a reading of %s: pause %s, want %s", tc.relays, tc.took, got, tc.want)
		}
	}
}
