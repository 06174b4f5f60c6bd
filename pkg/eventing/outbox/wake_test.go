package outbox

import (
	"context"
	"errors"
	"testing"

	"example.com/lockstep/internal/pgtest"
)

// heard waits until r is woken.
func heard(t *testing.T, r *Relay, when string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case <-r.woken:
	case <-ctx.Done():
		t.Fatalf("not woken %s", when)
	}
}

func TestRelaysWakeEachOther(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	b := newBenchOn(t, pg)
	listener, notifier := b.newRelay(t), b.newRelay(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go listener.listen(ctx)
	go notifier.notify(ctx)
	heard(t, listener, "when it began to listen")
	notifier.Wake()
	heard(t, listener, "by another relay")
	pg.Terminate(t)
	heard(t, listener, "when it listened again")
}

func TestARelayNoticesThatItIsDeaf(t *testing.T) {
	t.Parallel()
	// Notifications stay within a database: to hear those of another one is to
	// hear nothing, as through a transaction pooler.
	b, other := newBench(t), pgtest.New(t)
	r := b.newRelay(t)
	r.options.ListenURL = other.VideoURL
	if err := r.listenOnce(t.Context(), func() {}); !errors.Is(err, errDeaf) {
		t.Errorf("%v, want errDeaf", err)
	}
}
