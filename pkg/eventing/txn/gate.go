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

// place is the state of a key that has callers. gate.mu guards all fields except inside.
type place struct {
	// inside has one element while a caller is in. It is not one of the Writer's turns.
	inside chan struct{}
	// callers counts the caller that is in and the callers that wait.
	callers int
	// locked is true if the last try of a caller for this key met another transaction's lock.
	locked bool
	// met is when a try for this key last met another transaction's lock.
	met time.Time
	// trying is true while the caller that is in has one of the Writer's turns (Writer.turns). It has no
	// meaning for the callers without a key, because several of them may have turns at once.
	trying bool
}

// enter waits until the caller is in for key. If too many callers wait for a lock (maxBehindLock), enter
// returns ErrLocked at once. If ctx ends before the caller is in, enter returns ErrLocked or ErrBusy.
// began is the time at which the caller began to wait, and budget is how long a caller waits. A caller
// that is in must call leave.
func (g *gate) enter(ctx context.Context, key string, began time.Time, budget time.Duration) (*place, error) {
	p, ok := g.join(key, began.Add(-budget))
	if !ok {
		return nil, ErrLocked
	}
	select {
	case p.inside <- struct{}{}: // in the order of arrival
		return p, nil
	case <-ctx.Done():
		defer g.quit(key, p)
		return nil, g.reason(p, began)
	}
}

// join returns the place of key. ok is false if maxBehindLock callers wait already, and the last try for
// key met another transaction's lock after the time since. A lock that was met earlier does not count,
// because it may be gone: while no caller of the place gets a turn, no try shows that.
func (g *gate) join(key string, since time.Time) (p *place, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p = g.keys[key]
	if p == nil {
		p = &place{inside: make(chan struct{}, 1)}
		g.keys[key] = p
	}
	if p.locked && p.met.After(since) && p.callers > maxBehindLock {
		return nil, false
	}
	p.callers++
	return p, true
}

func (g *gate) leave(key string, p *place) {
	<-p.inside
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

// endTurn notes that a caller of p gives its turn back. locked is true if the caller's try met another
// transaction's lock.
func (g *gate) endTurn(p *place, locked bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.trying, p.locked = false, locked
	if locked {
		p.met = time.Now()
		g.met = p.met
	}
}

// reason returns the error of a caller that gives up its wait: ErrLocked if a try that it waited for has
// met a lock since the time began, and otherwise ErrBusy.
//
//   - p is nil for a caller that is in and waited for one of the Writer's turns. The callers of all keys
//     share the turns, so the tries for all keys count.
//   - Otherwise the caller waited at the place p. If the caller that is in at p has a turn, only the
//     tries for p's key count. If that caller waits for a turn itself, the tries for all keys count.
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
