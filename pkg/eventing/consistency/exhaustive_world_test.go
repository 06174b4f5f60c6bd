package consistency

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/notify"
)

// waitWorld is one process with its readers, and the commits whose notifications are on their way.
type waitWorld struct {
	t         *testing.T
	left      waitScope
	took      []string
	waiters   *Waiters
	reader    *Reader
	readers   []*waitReader
	db        [2]int64
	look      gate // of the read for waiting readers
	asked     []Position
	connected bool
	// here are commits of this process, and there those of another one, that are not notified yet.
	here, there []Position
	// missed says that a notification was lost or a read has failed, and reverted that a commit was lost.
	missed, reverted bool
	order            atomic.Int64
}

// sync tells the race detector that a goroutine which a timer wakes runs after the steps before the pause.
func (w *waitWorld) sync() { w.order.Add(1) }

func (w *waitWorld) pass(d time.Duration) {
	w.sync()
	backoff.Sleep(w.t.Context(), d, nil)
}

// gate holds up a read before and after its snapshot.
type gate struct {
	under, snapped bool
	seen           [2]int64
	step           chan error
}

func (g *gate) read(ctx context.Context, w *waitWorld) ([2]int64, error) {
	w.sync()
	g.under = true
	defer func() { g.under, g.snapped = false, false }()
	for range 2 {
		select {
		case err := <-g.step:
			if err != nil {
				return [2]int64{}, err
			}
		case <-ctx.Done():
			return [2]int64{}, ctx.Err()
		}
		if !g.snapped {
			g.snapped, g.seen = true, w.db
		}
	}
	return g.seen, nil
}

// waitReader is one reader, and its Query.
type waitReader struct {
	gate

	world            *waitWorld
	wants            [2]int64
	cancel           context.CancelFunc
	cancelled, ended bool
	reads            int
	outcome          Outcome
	err              error
}

func (r *waitReader) reached(at [2]int64) bool { return at[0] >= r.wants[0] && at[1] >= r.wants[1] }

func (r *waitReader) ReadProjection(ctx context.Context) (Freshness, error) {
	r.reads++
	if seen, err := r.read(ctx, r.world); err != nil || !r.reached(seen) {
		return Behind, err
	}
	return Reached, nil
}

func (r *waitReader) FetchFromOwner(ctx context.Context) error { return cmp.Or(ctx.Err(), errAsked) }

func newWaitWorld(t *testing.T, s waitScope, steps []string) *waitWorld {
	t.Helper()
	w := &waitWorld{t: t, left: s, took: steps, look: gate{step: make(chan error)}, connected: true}
	log := slog.New(slog.DiscardHandler)
	w.waiters = NewWaiters(cmp.Or(s.limit, 10), w, notify.New(nil, "", "test", log))
	w.reader = NewReader(w.waiters)
	go w.waiters.watch(t.Context(), log, func() bool { return w.connected }, func() {})
	synctest.Wait()
	for _, name := range steps {
		all := w.steps()
		w.take(all[slices.IndexFunc(all, func(s waitStep) bool { return s.name == name })])
	}
	return w
}

// Positions is the read for waiting readers.
func (w *waitWorld) Positions(ctx context.Context, wanted []Position) (found []Position, err error) {
	w.sync()
	w.asked = slices.SortedFunc(slices.Values(wanted), Position.compare)
	seen, err := w.look.read(ctx, w)
	w.asked = nil
	for _, p := range wanted {
		if v := seen[p.AggregateID[0]-'a']; v > 0 {
			found = append(found, at("v", p.AggregateID, v))
		}
	}
	return found, err
}

type waitStep struct {
	name string
	do   func()
	good bool // it is no fault and no new event, so that the rest of a run takes it
}

func (w *waitWorld) take(s waitStep) {
	s.do()
	synctest.Wait()
}

// steps returns the steps that are possible now.
func (w *waitWorld) steps() (all []waitStep) {
	good := func(possible bool, name string, do func()) {
		if possible {
			all = append(all, waitStep{name, do, true})
		}
	}
	limited := func(left *int, possible bool, name string, do func()) {
		if possible && *left > 0 {
			all = append(all, waitStep{name, func() { *left--; do() }, false})
		}
	}
	l, ctx := &w.left, w.t.Context()
	for i, r := range w.readers {
		good(r.under, fmt.Sprintf("reader %d reads", i), func() { r.step <- nil })
		limited(&l.cancels, !r.ended, fmt.Sprintf("reader %d leaves", i), func() { r.cancelled = true; r.cancel() })
	}
	good(w.look.under, "the read for all", func() { w.look.step <- nil })
	good(len(w.here) > 0, "notify", func() { w.notify(ctx, w.here[0]) })
	good(len(w.there) > 0 && w.connected, "a notification arrives", func() { w.hear(w.there[0].Key()); w.there = w.there[1:] })
	if len(w.here) > 0 {
		all = append(all, waitStep{"notify an unknown position", func() { w.notify(ctx, w.here[0].Unknown()) }, false})
	}
	if n := len(w.readers); n < len(l.wants) {
		all = append(all, waitStep{fmt.Sprintf("reader %d begins", n), func() { w.begin(l.wants[n]) }, false})
	}
	for i, id := range []string{"a", "b"} {
		commit := func(to *[]Position) func() {
			return func() { w.db[i]++; *to = append(*to, at("v", id, w.db[i])) }
		}
		limited(&l.commits, true, "commit here of "+id, commit(&w.here))
		limited(&l.commits, true, "commit there of "+id, commit(&w.there))
		limited(&l.failovers, w.db[i] > 0, "a failover loses "+id, func() { w.db[i]--; w.reverted = true })
	}
	limited(&l.lost, len(w.there) > 0, "a notification is lost", func() { w.there, w.missed = w.there[1:], true })
	limited(&l.failures, w.look.under, "the read for all fails", func() { w.missed = true; w.look.step <- errAway })
	limited(&l.passes, true, "a poll's time", func() { w.pass(idlePoll) })
	limited(&l.cuts, w.connected, "LISTEN breaks", func() { w.missed = w.missed || len(w.there) > 0; w.there = nil; w.listen(false) })
	if !w.connected {
		all = append(all, waitStep{"LISTEN is back", func() { w.listen(true) }, false})
	}
	limited(&l.drains, true, "drain", w.waiters.Drain)
	return all
}

func (w *waitWorld) notify(ctx context.Context, moved Position) {
	w.here = w.here[1:]
	w.waiters.Notify(ctx, moved)
}

// hear does as Waiters.received, whose Notification has the keys in a private form.
func (w *waitWorld) hear(key string) {
	w.waiters.markDirty(func(k string) bool { return k == key || key == "*" })
	w.waiters.wakeSoon()
}

func (w *waitWorld) listen(connected bool) { w.connected = connected; w.hear("*") }

// begin begins a read that may wait for an hour.
func (w *waitWorld) begin(wants [2]int64) {
	ctx, cancel := context.WithCancel(w.t.Context())
	r := &waitReader{gate: gate{step: make(chan error)}, world: w, wants: wants, cancel: cancel}
	w.readers = append(w.readers, r)
	required := Requirement{wait: time.Hour}
	for i, v := range wants {
		if v > 0 {
			required.positions = append(required.positions, at("v", string(rune('a'+i)), v))
		}
	}
	go func() { r.outcome, r.err = w.reader.Read(ctx, required, r); r.ended = true }()
}
