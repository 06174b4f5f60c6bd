package outbox

import (
	"cmp"
	"context"
	"log/slog"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// quickly is a backoff for tests, with pauses that show that it is in use.
var quickly = backoff.Policy{Base: time.Millisecond, Cap: 2 * time.Millisecond}

// startWith runs one relay with options until stop is called.
func (b *bench) startWith(t *testing.T, o Options) (stop func()) {
	t.Helper()
	r := NewRelay(cmp.Or(b.relayDB, b.db), b.client, b.topics, slog.New(slog.DiscardHandler), func() {}, o)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

func receive[T any](t *testing.T, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(patience):
		t.Fatalf("no %T is observed", got)
	}
	return got
}

// Each refusal is observed once it is written, and the last one as such.
func TestRefusalsAreObserved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "bad", 1, 2)
	b.append(t, "good", 1, 1)
	b.setFault(refuse("bad"))
	type written struct {
		Refusal
		attempts, parked int
	}
	seen := make(chan written, 10)
	b.startWith(t, Options{MaxAttempts: 3, RefusalBackoff: quickly, OnRefused: func(_ context.Context, r Refusal) {
		seen <- written{r, b.count(t, attempted), b.count(t, parked)}
	}})
	for n := 1; n <= 3; n++ {
		w := receive(t, seen)
		if w.Attempt != n || w.Parked != (n == 3) || w.Event.AggregateID != "bad" || w.Event.Version != 1 {
			t.Errorf("refusal %d is %+v", n, w.Refusal)
		}
		if w.Event.Payload != nil || status.Code(w.Err) != codes.InvalidArgument {
			t.Errorf("refusal %d has the payload %q and the error %v", n, w.Event.Payload, w.Err)
		}
		if w.attempts < n || n == 3 && w.parked != 1 {
			t.Errorf("refusal %d is observed with %d attempts and %d parked events in the outbox", n, w.attempts, w.parked)
		}
	}
	b.eventually(t, 1, unpublished+` AND parked_at IS NOT NULL`)
	b.eventually(t, 0, unpublished+` AND aggregate_id = 'good'`)
	if len(seen) > 0 {
		t.Errorf("%+v is observed after the parking", (<-seen).Refusal)
	}
}

// A pause is observed when it begins and at each probe that fails.
func TestPausesAreObserved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "a", 1, 1)
	b.setFault(func(context.Context, *pubsubpb.PublishRequest, func(context.Context) error) error {
		return status.Error(codes.PermissionDenied, "not yours")
	})
	seen := make(chan Pause, 100)
	b.startWith(t, Options{OutageBackoff: quickly, OnPaused: func(_ context.Context, p Pause) {
		select {
		case seen <- p:
		default: // enough
		}
	}})
	first := receive(t, seen)
	if first.Topic != topic || first.Cause != causeOutage || first.Failures < 1 || status.Code(first.Err) != codes.PermissionDenied {
		t.Errorf("the pause is %+v", first)
	}
	// On a busy machine a pause may end because no event is due as a probe; another follows.
	later := receive(t, seen)
	for !later.Since.Equal(first.Since) || later.Failures <= first.Failures {
		first, later = later, receive(t, seen)
	}
	b.setFault(nil)
	b.eventually(t, 0, unpublished)
}

// A hook that never returns by itself holds up neither events nor the end of the relay.
func TestAHookThatBlocksDelaysNoEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "bad", 1, 1)
	b.setFault(refuse("bad"))
	blocked := make(chan struct{}, 1)
	stop := b.startWith(t, Options{MaxAttempts: 2, RefusalBackoff: quickly, OnRefused: func(ctx context.Context, _ Refusal) {
		blocked <- struct{}{}
		<-ctx.Done()
	}})
	receive(t, blocked)
	b.append(t, "good", 1, 3)
	b.eventually(t, 0, unpublished+` AND aggregate_id = 'good'`)
	b.eventually(t, 1, parked)
	stop()
}

func TestOptionsHaveBounds(t *testing.T) {
	t.Parallel()
	for given, want := range map[int]int{-1: 5, 0: 5, 1: 2, 2: 2, 100: 100, 1000: 100} {
		if got := (Options{MaxAttempts: given}).within().MaxAttempts; got != want {
			t.Errorf("%d attempts count as %d, want %d", given, got, want)
		}
	}
	day := backoff.Policy{Base: 24 * time.Hour, Cap: 24 * time.Hour}
	o := Options{RefusalBackoff: day, OutageBackoff: day}.within()
	if o.RefusalBackoff.Cap >= queue.MaxRetry || o.RefusalBackoff.Base >= queue.MaxRetry {
		t.Errorf("%+v: the queue takes such a retry for one without a time", o.RefusalBackoff)
	}
	if o.OutageBackoff.Cap != mostOutagePause || o.OutageBackoff.Base != mostOutagePause {
		t.Errorf("%+v after an outage", o.OutageBackoff)
	}
	if o = (Options{}).within(); o.RefusalBackoff != refusalPause || o.OutageBackoff != outagePause {
		t.Errorf("%+v in place of zero values", o)
	}
}

func TestPausesFollowTheOptions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := NewRelay(b.db, b.client, b.topics, slog.New(slog.DiscardHandler), func() {},
		Options{RefusalBackoff: quickly, OutageBackoff: quickly})
	bad := batchOf(1, 1)
	refused := report{refused: true, err: status.Error(codes.InvalidArgument, "bad")}
	var s claimSchedule
	p := r.pauses["video"]
	for range 50 {
		o := r.settlement(t.Context(), publishResult{&leasedBatch{events: bad}, refused})
		wait, _ := p.failed(status.Error(codes.NotFound, "no such topic"), p.state)
		r.claimFailed(t.Context(), &s, context.DeadlineExceeded)
		claims := time.Until(s.pausedUntil) // less than the pause, however slow this is
		if max(o.Failure.RetryIn, wait, claims) > quickly.Cap {
			t.Fatalf("a refusal waits %s, an outage of the topic %s and one of the database %s", o.Failure.RetryIn, wait, claims)
		}
	}
}
