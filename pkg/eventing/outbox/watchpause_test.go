package outbox

import (
	"testing"
	"testing/synctest"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
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

func TestARelayWithoutWorkReadsTheBacklogLessOften(t *testing.T) {
	t.Parallel()
	waiting := backlogReading{Backlog: queue.Backlog{Pending: 1}}
	parked := backlogReading{Backlog: queue.Backlog{Parked: 1}}
	for name, tc := range map[string]struct {
		reading backlogReading
		pause   time.Duration
		arrives time.Duration // 0: no event arrives
		want    time.Duration
	}{
		"no work":                          {pause: 2 * time.Second, want: 10 * time.Second},
		"no work, and a long reading":      {pause: 30 * time.Second, want: 30 * time.Second},
		"an event arrives":                 {pause: 2 * time.Second, arrives: 5 * time.Second, want: 5 * time.Second},
		"an event arrives in the pause":    {pause: 2 * time.Second, arrives: time.Second, want: 2 * time.Second},
		"an event waits":                   {reading: waiting, pause: 2 * time.Second, want: 2 * time.Second},
		"an event is parked":               {reading: parked, pause: 2 * time.Second, want: 2 * time.Second},
		"the backlog could not be read":    {reading: backlogReading{failures: 1}, pause: 2 * time.Second, want: 2 * time.Second},
		"… and an earlier reading had one": {reading: backlogReading{failures: 2, Backlog: waiting.Backlog}, pause: 30 * time.Second, want: 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, start := newInFlight(), time.Now()
				if tc.arrives > 0 {
					time.AfterFunc(tc.arrives, func() { f.add(claimResult{Claimed: queue.Claimed{Batches: batchFor("x", 1)}}) })
				}
				tc.reading.wait(t.Context(), tc.pause, f.arrived)
				if got := time.Since(start); got != tc.want {
					t.Errorf("the next reading is due after %s, want %s", got, tc.want)
				}
			})
		})
	}
}
