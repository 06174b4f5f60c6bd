package outbox

import (
	"context"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/pgtest"
)

// traceClaims gives the relays a pool that calls claimed after each answer to a claim of new events.
func (b *bench) traceClaims(t *testing.T, claimed func()) {
	t.Helper()
	cfg := b.db.Config().Copy()
	cfg.ConnConfig.Tracer = &pgtest.Tracer{After: func(trip pgtest.Trip, _ error) {
		if trip.Contains("WITH fresh AS MATERIALIZED") {
			claimed()
		}
	}}
	db := pgtest.Open(t, cfg)
	b.relayDB = db
}

// The publish of one event hangs. A relay that ends has nothing to claim until that publish ends.
func TestTheLastClaimsWaitForResults(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var claims atomic.Int64
	b.traceClaims(t, func() { claims.Add(1) })
	b.append(t, "a", 1, 1)
	inFlight := make(chan struct{}, 1)
	b.setFault(func(ctx context.Context, _ *pubsubpb.PublishRequest, _ func(context.Context) error) error {
		inFlight <- struct{}{}
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	})
	r := b.newRelay(t)
	r.drainFor, r.settleFor = drainTime/10, patience
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	<-inFlight
	before := claims.Load()
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := claims.Load() - before; n < 1 || n > 4 {
		t.Errorf("%d claims while nothing was published", n)
	}
}

// The first of the last claims begins before the settlement of version 1, and its answer arrives after it. So the claim cannot
// have version 2, and no event is in flight when it has ended.
func TestTheLastClaimsHaveTheEventBehindASettledOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	inFlight, goOn := make(chan struct{}), make(chan struct{})
	var r *Relay
	var ending, held atomic.Bool
	b.traceClaims(t, func() {
		if ending.Load() && held.CompareAndSwap(false, true) {
			close(goOn)
			b.poll(t, func() bool { return r.inFlight.total() == 0 }, "version 1 is not settled")
		}
	})
	b.append(t, "a", 1, 1)
	b.setFault(func(ctx context.Context, req *pubsubpb.PublishRequest, send func(context.Context) error) error {
		if string(req.Messages[0].Data) == "1" {
			close(inFlight)
			<-goOn
		}
		return send(ctx)
	})
	r = b.newRelay(t)
	r.lastFor, r.drainFor = patience, patience
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	<-inFlight
	b.append(t, "a", 2, 2)
	ending.Store(true)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, unpublished); n != 0 || !held.Load() {
		t.Errorf("%d events are left to another relay", n)
	}
}

// A relay that is told to end has no room for a claim. When its batches are settled, it claims the event that was committed before.
func TestTheLastClaimsWaitForRoom(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "a", 1, 1)
	inFlight, goOn := make(chan struct{}), make(chan struct{})
	b.setFault(func(ctx context.Context, req *pubsubpb.PublishRequest, send func(context.Context) error) error {
		if req.Messages[0].OrderingKey == "a" {
			close(inFlight)
			<-goOn
		}
		return send(ctx)
	})
	r := b.newRelay(t)
	r.lastFor, r.drainFor = patience, patience
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	<-inFlight
	reserve := func(claims int) {
		r.inFlight.mu.Lock()
		r.inFlight.reserved += claims
		r.inFlight.mu.Unlock()
		r.inFlight.signalRoom()
	}
	reserve(maxEvents) // more than there is room for
	b.append(t, "b", 1, 1)
	cancel()
	b.poll(t, func() bool {
		r.inFlight.mu.Lock()
		defer r.inFlight.mu.Unlock()
		return r.inFlight.ending && r.inFlight.waiting[byClaim]
	}, "no last claim waits for room")
	reserve(-maxEvents)
	close(goOn)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, unpublished); n != 0 {
		t.Errorf("%d events are left to another relay", n)
	}
}
