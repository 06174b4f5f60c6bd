package inbox

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	tickEvery = 250 * time.Millisecond
	// frozen is a pulse that came this late: the process did not run, because it
	// was stopped, or got no CPU.
	stallTime = time.Second
)

// pulse notices that the process did not run for a while. What met a time limit
// meanwhile is not to blame. Instants compare by the monotonic clock: the wall clock
// may step back. A pulse is late by either, since the monotonic clock may stand still
// with the machine; a wall clock that steps forward is taken for that, once.
type stallDetector struct{ last, stalled atomic.Pointer[reading] }

// reading is both clocks at one instant.
type reading struct {
	monotonic time.Time
	wall      int64
}

func readClocks() reading {
	now := time.Now()
	return reading{monotonic: now, wall: now.UnixNano()}
}

func (p *stallDetector) run(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		p.note(readClocks())
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (p *stallDetector) note(now reading) {
	if p.late(now) {
		p.stalled.Store(&now)
	}
	p.last.Store(&now)
}

// frozeSince reports whether the process stood still after t. It may be asked
// before the pulse itself has come again.
func (p *stallDetector) stalledSince(t time.Time) bool {
	stalled := p.stalled.Load()
	return stalled != nil && !stalled.monotonic.Before(t) || p.late(readClocks())
}

func (p *stallDetector) late(now reading) bool {
	last := p.last.Load()
	return last != nil && (now.monotonic.Sub(last.monotonic) > stallTime || now.wall-last.wall > int64(stallTime))
}
