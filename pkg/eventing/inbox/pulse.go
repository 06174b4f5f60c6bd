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
// meanwhile is not to blame. It goes by the wall clock: the monotonic one may
// stand still with the machine.
type pulse struct{ last, froze atomic.Int64 }

func (p *pulse) run(ctx context.Context) {
	ticker := time.NewTicker(pulseEvery)
	defer ticker.Stop()
	for {
		now := time.Now().UnixNano()
		if p.late(now) {
			p.froze.Store(now)
		}
		p.last.Store(now)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// frozeSince reports whether the process stood still after t. It may be asked
// before the pulse itself has come again.
func (p *pulse) frozeSince(t time.Time) bool {
	return p.froze.Load() >= t.UnixNano() || p.late(time.Now().UnixNano())
}

func (p *pulse) late(now int64) bool {
	last := p.last.Load()
	return last > 0 && now-last > int64(frozen)
}
