package consistency

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"example.com/lockstep/pkg/eventing/notify"
)

// ErrTooManyWaiters means that the limit of waiting readers, or of the memory that they hold, is
// reached. The caller should tell its reader at once that the service is busy.
var ErrTooManyWaiters = fmt.Errorf("%w: too many readers are waiting", ErrBusy)

// Projection is the tables of a service that readers wait for, with one or several types of
// aggregates.
type Projection interface {
	// Positions returns the positions of the given aggregates, except those that the projection
	// does not have. Only the type and id of the arguments matter. They come from readers' tokens.
	// Positions must skip an id that cannot exist, because an error fails the read for all readers.
	Positions(ctx context.Context, aggregates []Position) ([]Position, error)
}

// Waiters are the readers in this process that wait for a projection to catch up. All
// methods but Run are safe at any time and never block longer than they say.
type Waiters struct {
	max        int
	projection Projection
	notifier   *notify.Notifier
	metrics    metrics
	wake       chan struct{}
	drained    chan struct{} // closed by Drain
	drain      sync.Once

	mu      sync.Mutex
	count   int // the places that are taken
	bytes   int // the sum of the readers' cost
	entries map[string]*entry
	dirty   map[string]Position // the aggregates that Run must read
}

// entry is an aggregate for which readers wait.
type entry struct {
	aggregate Position
	waiters   map[*waiter]Position // each with the position that it wants
	// moved is the span of the last commit of this process that moved the aggregate.
	moved trace.SpanContext
}

// waiter is one reader. Waiters.mu guards it.
type waiter struct {
	wanted  []Position
	missing int
	bytes   int  // the memory that the reader holds
	counted bool // the reader has taken one of the places
	refused bool // there was no place for the reader
	// commits are the spans of the commits that the reader waited for, as far as the spans are
	// known.
	commits []trace.Link
	done    chan struct{} // closed when no position is missing
}

// NewWaiters returns a set of at most limit waiting readers of a projection. Together the readers
// hold at most 24 MiB. The notifier others tells the set of the commits of other processes, and
// tells these processes of the commits that Notify reports.
func NewWaiters(limit int, projection Projection, others *notify.Notifier) *Waiters {
	return &Waiters{
		max: limit, projection: projection, notifier: others, metrics: newMetrics(), wake: make(chan struct{}, 1),
		drained: make(chan struct{}), entries: map[string]*entry{}, dirty: map[string]Position{},
	}
}

// Wait returns true as soon as the projection is known to be at all wanted positions or beyond.
// wanted must name each aggregate at most once. Wait returns false if ctx ends or Drain is called
// first. The only error is ErrTooManyWaiters. Without Run the projection is not read.
func (w *Waiters) Wait(ctx context.Context, wanted ...Position) (bool, error) {
	r, err := w.add(wanted)
	if err != nil {
		return false, err
	}
	defer w.remove(r)
	w.readFor(r)
	return w.await(ctx, r)
}

// await is Wait for a reader that was added before.
func (w *Waiters) await(ctx context.Context, r *waiter) (bool, error) {
	if reached := w.takePlace(r); !reached && r.refused {
		return false, ErrTooManyWaiters
	}
	return w.sleep(ctx, r, r.done), nil
}

// waitOut is for a reader that must not learn that its positions are reached, after await has returned that
// they are. It does the same as await for positions that are never reached. If there was no place for r,
// waitOut fails. Otherwise it waits until ctx ends or Drain is called. r then has a place again, even if
// none is free, because a refusal would tell that the positions were reached.
func (w *Waiters) waitOut(ctx context.Context, r *waiter) error {
	if r.refused {
		return ErrTooManyWaiters
	}
	w.mu.Lock()
	w.count++
	r.counted, r.bytes = true, r.cost()
	w.bytes += r.bytes
	w.mu.Unlock()
	w.sleep(ctx, r, nil)
	return nil
}

// sleep returns true when reached is closed, or false when ctx ends or Drain is called first.
func (w *Waiters) sleep(ctx context.Context, r *waiter, reached <-chan struct{}) bool {
	began := time.Now()
	span := startWait(ctx, r.wanted)
	select {
	case <-reached:
	case <-w.drained:
	case <-ctx.Done():
	}
	ended := isClosed(reached)
	w.mu.Lock()
	commits := r.commits
	w.mu.Unlock()
	endWait(span, ended, commits)
	w.metrics.wait.Record(ctx, time.Since(began).Seconds(), ofReached[ended])
	return ended
}

// Notify says that the projection has moved aggregates to these positions, or beyond. Version 0
// stands for a position that the caller does not know. Run then reads the position from the
// projection. Call Notify after the commit that moved the aggregates. The waits that Notify ends
// are linked to the span of ctx. Notify never blocks.
func (w *Waiters) Notify(ctx context.Context, moved ...Position) {
	commit, keys := trace.SpanContextFromContext(ctx), make([]string, len(moved))
	w.mu.Lock()
	read := false
	for i, at := range moved {
		keys[i] = at.Key()
		s := w.entries[keys[i]]
		if s == nil {
			continue
		}
		s.moved = commit
		if at.Version > 0 {
			w.reach(keys[i], at)
			continue
		}
		w.dirty[keys[i]], read = s.aggregate, true
	}
	w.mu.Unlock()
	if read {
		w.wakeSoon()
	}
	w.notifier.Publish(keys...)
}

// Drain ends all waits and lets none begin. It does not end Run.
func (w *Waiters) Drain() { w.drain.Do(func() { close(w.drained) }) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// readFor requests a read for r, because the projection may have moved between the reader's own
// read and add.
func (w *Waiters) readFor(r *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range r.wanted {
		if s := w.entries[p.Key()]; s != nil {
			w.dirty[p.Key()] = s.aggregate
		}
	}
	w.wakeSoon()
}

// reached ends the waits for the positions in found.
func (w *Waiters) reached(found []Position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range found {
		w.reach(at.Key(), at)
	}
}

// reach says that the projection has moved the aggregate with this key to the position at. It ends
// each wait for the aggregate that wants at or an earlier position. The caller has locked w.mu.
func (w *Waiters) reach(key string, at Position) {
	s := w.entries[key]
	if s == nil {
		return
	}
	for r, wanted := range s.waiters {
		if !wanted.Reached(at.Epoch, at.Version) {
			continue
		}
		// The reader need not wait for this position again, because projections do not go back.
		w.forget(r, key)
		if s.moved.IsSampled() {
			r.commits = append(r.commits, trace.Link{SpanContext: s.moved})
		}
		r.missing--
		if r.missing == 0 {
			close(r.done)
			w.free(r)
		}
	}
}
