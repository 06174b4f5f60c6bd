package inbox

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A process that runs is never taken for a stalled one. Time is the bubble's.
func TestNoStallOfAProcessThatRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		var p stallDetector
		began := time.Now()
		go p.run(ctx)
		time.Sleep(time.Minute) //nolint:forbidigo // of the virtual clock: it takes no time
		if p.stalledSince(began) {
			t.Error("it stood still, it says")
		}
	})
}
