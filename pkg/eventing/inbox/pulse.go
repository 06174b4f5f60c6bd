package inbox

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	pulseEvery = 250 * time.Millisecond
	// frozen is a pulse that came this late: the process did not run, because it
	// was stopped, or got no CPU.
	frozen = time.Second
)

// pulse notices that the process did not run for a while. What met a time limit
// meanwhile is not to blame. Instants compare by the monotonic clock: the wall clock
// may step back. A pulse is late by either, since the monotonic clock may stand still
// with the machine; a wall clock that steps forward is taken for that, once.
type pulse struct{ last, froze atomic.Pointer[reading] }

// reading is both clocks at one instant.
type reading struct {
	monotonic time.Time
	wall      int64
}

func readClocks() reading {
	now := time.Now()
	return reading{monotonic: now, wall: now.UnixNano()}
}

func (p *pulse) run(ctx context.Context) {
	ticker := time.NewTicker(pulseEvery)
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

func (p *pulse) note(now reading) {
	if p.late(now) {
		p.froze.Store(&now)
	}
	p.last.Store(&now)
}

// frozeSince reports whether the process stood still after t. It may be asked
// before the pulse itself has come again.
func (p *pulse) frozeSince(t time.Time) bool {
	froze := p.froze.Load()
	return froze != nil && !froze.monotonic.Before(t) || p.late(readClocks())
}

func (p *pulse) late(now reading) bool {
	last := p.last.Load()
	return last != nil && (now.monotonic.Sub(last.monotonic) > frozen || now.wall-last.wall > int64(frozen))
}
