package txn

import (
	"context"
	"sync"
)

// maxBehindLock is how many requests of a process may wait for a row that another transaction was
// found to hold. While writes to a row succeed, any number of requests may wait for the row.
const maxBehindLock = 8

// gate lets one caller at a time in for each key. A caller that waits at the gate holds no
// connection.
type gate struct {
	mu   sync.Mutex
	keys map[string]*place
}

// place is the state of a key that has callers. The caller that is in holds turn. gate.mu guards
// the other fields.
type place struct {
	turn chan struct{}
	// callers counts the caller that is in and the callers that wait.
	callers int
	// locked says that the last try of a caller for this key met another transaction's lock.
	locked bool
}

// enter waits until the caller is in for key. ok is false if ctx ended before that, or if too many
// callers wait for a lock. A caller that is in must call leave.
func (g *gate) enter(ctx context.Context, key string) (p *place, ok bool) {
	if p, ok = g.join(key); !ok {
		return nil, false
	}
	select {
	case p.turn <- struct{}{}: // in the order of arrival
		return p, true
	case <-ctx.Done():
		g.quit(key, p)
		return nil, false
	}
}

func (g *gate) join(key string) (*place, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.keys[key]
	if p == nil {
		p = &place{turn: make(chan struct{}, 1)}
		g.keys[key] = p
	}
	if p.locked && p.callers > maxBehindLock {
		return nil, false
	}
	p.callers++
	return p, true
}

func (g *gate) leave(key string, p *place) {
	<-p.turn
	g.quit(key, p)
}

func (g *gate) quit(key string, p *place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.callers--
	if p.callers == 0 {
		delete(g.keys, key)
	}
}

func (g *gate) setLocked(p *place, locked bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.locked = locked
}
