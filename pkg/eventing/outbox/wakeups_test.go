package outbox

import (
	"context"
	"sync"
	"testing"

	"example.com/lockstep/internal/pgtest"
)

// awaitWakeup waits until r is woken.
func awaitWakeup(t *testing.T, r *Relay, when string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case <-r.wakeups:
	case <-ctx.Done():
		t.Fatalf("not woken %s", when)
	}
}

func TestRelaysWakeEachOther(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	b := newBenchOn(t, pg)
	ctx, cancel := context.WithCancel(t.Context())
	var ringing sync.WaitGroup
	defer ringing.Wait()
	defer cancel()
	notifier, listener := b.newRelay(t), b.newRelay(t)
	for _, r := range []*Relay{notifier, listener} {
		ringing.Go(func() { _ = r.notifier.Run(ctx, r.onNotify) })
		awaitWakeup(t, r, "when it began to listen")
	}
	notifier.Wake()
	awaitWakeup(t, listener, "by another relay")
	pg.Terminate(t)
	awaitWakeup(t, listener, "when it listened again")
}
