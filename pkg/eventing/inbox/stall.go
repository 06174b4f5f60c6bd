package inbox

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	tickEvery = 250 * time.Millisecond
	// stallTime is a duration. If more time lies between two ticks, the process counts as stalled, because
	// it was stopped or got no CPU.
	stallTime = time.Second
)

// stallDetector notices that the process did not run for a while. If a time limit passed
// meanwhile, no event is at fault. Instants are compared by the monotonic clock, because the wall
// clock may step back. A tick is late if it is late by either clock, because the monotonic clock
// may stand still while the machine is suspended. If the wall clock steps forward, that looks like
// one stall.
type stallDetector struct{ last, stalled atomic.Pointer[reading] }

// reading is the time by both clocks at one instant.
type reading struct {
	monotonic time.Time
	wall      int64
}

func readClocks() reading {
	now := time.Now()
	return reading{monotonic: now, wall: now.UnixNano()}
}

func (s *stallDetector) run(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		s.note(readClocks())
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *stallDetector) note(now reading) {
	if s.late(now) {
		s.stalled.Store(&now)
	}
	s.last.Store(&now)
}

// stalledSince reports whether the process stalled after t. It also reads the clocks now, because
// the caller may ask before the next tick.
func (s *stallDetector) stalledSince(t time.Time) bool {
	stalled := s.stalled.Load()
	return stalled != nil && !stalled.monotonic.Before(t) || s.late(readClocks())
}

func (s *stallDetector) late(now reading) bool {
	last := s.last.Load()
	return last != nil && (now.monotonic.Sub(last.monotonic) > stallTime || now.wall-last.wall > int64(stallTime))
}
