package consistency

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// lookTimeout bounds one look, at maxLook aggregates.
	lookTimeout = 5 * time.Second
	maxLook     = 10_000
	// The interval of looks at all awaited aggregates. While LISTEN works, they only
	// find commits whose notification was lost.
	idlePoll, fallbackPoll = 2 * time.Second, 50 * time.Millisecond
	// pollShare keeps polling for very many readers below a tenth of the time.
	pollShare = 10
)

// retry is the pause after a look has failed.
var retry = backoff.Policy{Base: 100 * time.Millisecond, Cap: 5 * time.Second}

// Run looks at the copy for all waiting readers, and exchanges notifications with other
// processes, until ctx ends; then it returns nil. It calls beat every few seconds, also
// while the database does not answer. Run must be called once.
func (w *Waiters) Run(ctx context.Context, log *slog.Logger, beat func()) error {
	var g errgroup.Group
	g.Go(func() error { return w.bell.Run(ctx, w.heard) })
	g.Go(func() error { w.watch(ctx, log.With("component", "waiters"), w.bell.Connected, beat); return nil })
	return g.Wait()
}

// watch looks at the due aggregates until ctx ends. There is one look at a time:
// aggregates that become due meanwhile share the next one.
func (w *Waiters) watch(ctx context.Context, log *slog.Logger, told func() bool, beat func()) {
	everything := func(string) bool { return true }
	polled, took, failures := time.Now(), time.Duration(0), 0
	for ctx.Err() == nil {
		beat()
		next := polled.Add(pace(told(), took))
		if !time.Now().Before(next) {
			w.setDue(everything)
			polled = time.Now()
			continue
		}
		due := w.takeDue()
		if len(due) == 0 {
			backoff.Sleep(ctx, time.Until(next), w.wake)
			continue
		}
		began := time.Now()
		if err := w.lookAt(ctx, due); err != nil && ctx.Err() == nil {
			failures++
			log.WarnContext(ctx, "cannot look for those who wait", "error", err, "aggregates", len(due))
			backoff.Sleep(ctx, retry.Delay(failures), nil)
			w.setDue(everything)
			continue
		}
		// Looks at little, in between, must not make the next one at everything soon.
		took, failures = max(took/2, time.Since(began)), 0
	}
}

// lookAt looks at due in parts, so that no number of waiters makes a look too large
// to end in time.
func (w *Waiters) lookAt(ctx context.Context, due []Position) error {
	for part := range slices.Chunk(due, maxLook) {
		if err := w.lookAtPart(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (w *Waiters) lookAtPart(ctx context.Context, part []Position) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	found, err := w.positions(ctx, part)
	if err == nil {
		w.reached(found)
	}
	return err
}

// pace is the time from one look at everything to the next.
func pace(told bool, took time.Duration) time.Duration {
	if told {
		return idlePoll
	}
	return min(max(fallbackPoll, pollShare*took), idlePoll)
}
