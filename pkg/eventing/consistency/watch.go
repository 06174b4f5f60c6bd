package consistency

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/notify"
)

const (
	// readTimeout bounds one read of the positions of up to maxRead aggregates.
	readTimeout = 5 * time.Second
	maxRead     = 10_000
	// idlePoll is the interval of the reads of all awaited aggregates while LISTEN works. These
	// reads are only needed for commits whose notification was lost. Without LISTEN the interval is
	// fallbackPoll, or longer if reads take long.
	idlePoll, fallbackPoll = 2 * time.Second, 50 * time.Millisecond
	// pollShare is a ratio. Without LISTEN the interval is pollShare times as long as a read takes, but at
	// least fallbackPoll and at most idlePoll. So even for very many readers the reads take about a tenth
	// of the time.
	pollShare = 10
)

// retry is the pause after a read has failed.
var retry = backoff.Policy{Base: 100 * time.Millisecond, Cap: 5 * time.Second}

// Run reads the projection for all waiting readers, and exchanges notifications with other
// processes, until ctx ends. Then Run returns nil. It calls heartbeat every few seconds, even while
// the database does not answer. Run must be called once.
func (w *Waiters) Run(ctx context.Context, log *slog.Logger, heartbeat func()) error {
	var g errgroup.Group
	g.Go(func() error { return w.notifier.Run(ctx, w.received) })
	g.Go(func() error {
		w.watch(ctx, log.With("component", "waiters"), w.notifier.Connected, heartbeat)
		return nil
	})
	return g.Wait()
}

// watch reads the dirty aggregates until ctx ends. It makes one read at a time. Aggregates that
// become dirty during a read share the next read.
func (w *Waiters) watch(ctx context.Context, log *slog.Logger, connected func() bool, heartbeat func()) {
	defer w.observe()()
	everything := func(string) bool { return true }
	polled, took, failures := time.Now(), time.Duration(0), 0
	for ctx.Err() == nil {
		heartbeat()
		next := polled.Add(pace(connected(), took))
		if !time.Now().Before(next) {
			w.markDirty(everything)
			polled = time.Now()
			continue
		}
		dirty := w.takeDirty()
		if len(dirty) == 0 {
			backoff.Sleep(ctx, time.Until(next), w.wake)
			continue
		}
		began := time.Now()
		if err := w.readPositions(ctx, dirty); err != nil && ctx.Err() == nil {
			failures++
			log.WarnContext(ctx, "cannot read positions for waiting readers", "error", err, "aggregates", len(dirty))
			backoff.Sleep(ctx, retry.Delay(failures), nil)
			w.markDirty(everything)
			continue
		}
		// A short read of few aggregates must not shorten the pause before the next read of all
		// aggregates.
		took, failures = max(took/2, time.Since(began)), 0
	}
}

// readPositions reads the dirty aggregates in parts, so that no number of waiters makes a
// read too large to end in time.
func (w *Waiters) readPositions(ctx context.Context, dirty []Position) error {
	for part := range slices.Chunk(dirty, maxRead) {
		if err := w.readPart(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (w *Waiters) readPart(ctx context.Context, part []Position) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	found, err := w.projection.Positions(ctx, part)
	if err == nil {
		w.reached(found)
	}
	return err
}

// pace is the time from one read of all aggregates to the next.
func pace(connected bool, took time.Duration) time.Duration {
	if connected {
		return idlePoll
	}
	return min(max(fallbackPoll, pollShare*took), idlePoll)
}

// takeDirty returns the aggregates to read, and forgets them.
func (w *Waiters) takeDirty() []Position {
	w.mu.Lock()
	defer w.mu.Unlock()
	dirty := slices.Collect(maps.Values(w.dirty))
	clear(w.dirty)
	return dirty
}

// received marks the aggregates that another process has moved.
func (w *Waiters) received(moved notify.Notification) {
	w.markDirty(moved.Mentions)
	w.wakeSoon()
}

func (w *Waiters) markDirty(matches func(key string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, s := range w.entries {
		if matches(k) {
			w.dirty[k] = s.aggregate
		}
	}
}

func (w *Waiters) wakeSoon() {
	select {
	case w.wake <- struct{}{}:
	default: // watch is about to read anyway
	}
}
