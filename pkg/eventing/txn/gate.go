package txn

import (
	"context"
	"sync"
	"time"
)

// maxBehindLock is how many requests of a process may wait for a row that another transaction was
// found to hold. While writes to a row succeed, any number of requests may wait for the row.
const maxBehindLock = 8

// gate lets one caller at a time in for each key. A caller that waits at the gate holds no
// connection.
type gate struct {
	mu   sync.Mutex
	keys map[string]*place
	// met is when a try for any key last met another transaction's lock.
	met time.Time
}

// place is the state of a key that has callers. The caller that is in holds turn. gate.mu guards
// the other fields.
type place struct {
	turn chan struct{}
	// callers counts the caller that is in and the callers that wait.
	callers int
	// locked says that the last try of a caller for this key met another transaction's lock.
	locked bool
	// met is when a try for this key last met another transaction's lock.
	met time.Time
	// trying says that the caller that is in has one of the writer's turns. It has no meaning for the
	// callers without a key, because several of them may have turns at once.
	trying bool
}

// enter waits until the caller is in for key. The error is ErrLocked or ErrBusy, if ctx ended before
// that, or if too many callers wait for a lock. began is when the caller began to wait, and budget is
// how long a caller waits. A caller that is in must call leave.
func (g *gate) enter(ctx context.Context, key string, began time.Time, budget time.Duration) (*place, error) {
	p, ok := g.join(key, began.Add(-budget))
	if !ok {
		return nil, ErrLocked
	}
	select {
	case p.turn <- struct{}{}: // in the order of arrival
		return p, nil
	case <-ctx.Done():
		defer g.quit(key, p)
		return nil, g.reason(p, began)
	}
}

// join returns the place of key. ok is false if too many callers wait for a lock that was met after the
// time since. Without this limit, a place whose callers get no turn would remember an old lock.
func (g *gate) join(key string, since time.Time) (p *place, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p = g.keys[key]
	if p == nil {
		p = &place{turn: make(chan struct{}, 1)}
		g.keys[key] = p
	}
	if p.locked && p.met.After(since) && p.callers > maxBehindLock {
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

// beginTurn notes that a caller of p has one of the writer's turns.
func (g *gate) beginTurn(p *place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.trying = true
}

// endTurn notes the end of that turn, and whether the try met another transaction's lock.
func (g *gate) endTurn(p *place, locked bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.trying, p.locked = false, locked
	if locked {
		p.met = time.Now()
		g.met = p.met
	}
}

// reason returns ErrLocked if a try has met a lock since the time began, and otherwise ErrBusy. p is the
// place at which the caller waits. p is nil if the caller is in and has waited for one of the writer's
// turns, which the callers of all keys share. The tries for all keys count if p is nil, and while the
// caller that is in at p waits for a turn. Otherwise only the tries for p's key count.
func (g *gate) reason(p *place, began time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	met := g.met
	if p != nil && p.trying {
		met = p.met
	}
	if met.Before(began) {
		return ErrBusy
	}
	return ErrLocked
}
