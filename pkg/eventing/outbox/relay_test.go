package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// TestManyRelaysKeepOrder lets four relays fight over one outbox while writers
// append, and publishes fail, get lost after they arrived, and arrive late.
func TestManyRelaysKeepOrder(t *testing.T) {
	t.Parallel()
	const aggregates, versions = 20, 30
	b := newBench(t)
	var late sync.WaitGroup
	faults := rand.New(rand.NewPCG(1, 2))
	b.setFault(func(ctx context.Context, _ *pubsubpb.PublishRequest, send func(context.Context) error) error {
		b.mu.Lock()
		dice := faults.IntN(20)
		b.mu.Unlock()
		switch dice {
		case 0:
			return status.Error(codes.Unavailable, "connection refused")
		case 1: // arrives, but the answer is lost
			if err := send(ctx); err != nil {
				return err
			}
			return status.Error(codes.DeadlineExceeded, "answer lost")
		case 2: // arrives after the caller gave up
			late.Go(func() { _ = send(context.WithoutCancel(ctx)) })
			return status.Error(codes.DeadlineExceeded, "still on its way")
		default:
			return send(ctx)
		}
	})
	stop := b.relay(t, 4)
	var writers sync.WaitGroup
	for i := range aggregates {
		writers.Go(func() { b.append(t, fmt.Sprint("a", i), 1, versions) })
	}
	writers.Wait()
	b.eventually(t, 0, unpublished)
	stop()
	late.Wait()
	for i := range aggregates {
		firstSightings(t, b.sent(fmt.Sprint("a", i)), versions)
	}
	if n := b.count(t, attempted); n != 0 {
		t.Errorf("outages spent %d attempts", n)
	}
	if n := b.count(t, leased); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

func TestVersionsOfAnAggregateShareARequest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "a", 1, 10)
	var requests atomic.Int64
	b.setFault(func(ctx context.Context, _ *pubsubpb.PublishRequest, send func(context.Context) error) error {
		requests.Add(1)
		return send(ctx)
	})
	b.relay(t, 1)
	b.eventually(t, 0, unpublished)
	if n := requests.Load(); n != 1 {
		t.Errorf("10 versions took %d requests, want 1", n)
	}
}

// TestShutdownFinishesWhatIsInFlight cancels a relay in the middle of a publish.
func TestShutdownFinishesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "a", 1, 1)
	inFlight, goOn := make(chan struct{}), make(chan struct{})
	b.setFault(func(ctx context.Context, _ *pubsubpb.PublishRequest, send func(context.Context) error) error {
		close(inFlight)
		<-goOn
		return send(ctx)
	})
	r := b.newRelay(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	<-inFlight
	cancel()
	close(goOn)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, unpublished); n != 0 {
		t.Error("the publish in flight was not waited for, or not marked")
	}
}

// Events are committed before the relay is told to end: versions behind one that is on its way, which no claim takes yet, and one of
// another aggregate. The relay publishes all of them before it ends.
func TestTheLastClaims(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "a", 1, 1)
	inFlight, goOn := make(chan struct{}), make(chan struct{})
	var requests atomic.Int64
	b.setFault(func(ctx context.Context, _ *pubsubpb.PublishRequest, send func(context.Context) error) error {
		if requests.Add(1) == 1 {
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
	b.append(t, "a", 2, 3)
	b.append(t, "b", 1, 1)
	cancel()
	close(goOn)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, unpublished); n != 0 {
		t.Errorf("%d events are left to another relay", n)
	}
	firstSightings(t, b.sent("a"), 3)
}

// The publish of a cancelled relay never answers. The time to hand
// back the leases is long here: TestADrainEndsAlthoughTheDatabaseHangs has its bound.
func TestShutdownHandsBackWhatHangs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "a", 1, 1)
	b.append(t, "b", 1, 1)
	inFlight := make(chan struct{}, 2)
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
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, leased); n != 0 {
		t.Errorf("%d leases were not handed back", n)
	}
	if n := b.count(t, unpublished+` AND publish_attempts = 0 AND next_retry_at IS NULL AND last_error IS NULL`); n != 2 {
		t.Errorf("%d events are pending as they were, want 2", n)
	}
}

func TestBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	pg.URL = pg.Pooled(t, pg.URL)
	b := newBenchOn(t, pg)
	e := event("a", 2)
	e.SourceEventID = uuid.New()
	if err := b.appendAll(t, event("a", 1), e); err != nil {
		t.Fatal(err)
	}
	b.append(t, "b", 1, 1)
	b.setFault(func(ctx context.Context, req *pubsubpb.PublishRequest, send func(context.Context) error) error {
		if req.Messages[0].OrderingKey == "b" {
			return status.Error(codes.InvalidArgument, "bad")
		}
		return send(ctx)
	})
	r := b.newRelay(t)
	if _, _, err := r.queue.Renew(t.Context(), r.token, []uuid.UUID{e.ID}); err != nil {
		t.Error(err)
	}
	if _, _, err := r.queue.Backlog(t.Context(), queue.OldestSearch{}); err != nil {
		t.Error(err)
	}
	if _, err := r.queue.Heartbeat(t.Context(), r.token, "", nil, queue.HeartbeatResult{}, false); err != nil {
		t.Error(err)
	}
	if _, _, err := r.queue.Purge(t.Context(), time.Hour, 0); err != nil {
		t.Error(err)
	}
	b.relay(t, 1)
	b.eventually(t, 1, `SELECT count(*) FROM outbox WHERE publish_attempts = 1 AND aggregate_id = 'b'`)
	b.eventually(t, 0, unpublished+` AND aggregate_id = 'a'`)
}

// A relay never holds more than its limits, however many events are pending, and whether
// claims or scans find them. Neither new events nor a scan keep the other waiting for room.
func TestARelayHoldsNoMoreThanItSays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.newRelay(t), make(chan *leasedBatch, 4*maxEvents)
	var c claimSchedule
	r.step(t.Context(), &c, claimed)
	for round := range 5 {
		var events []eventing.Event
		for i := range claimEvents {
			events = append(events, event(fmt.Sprint(round, "-", i/minPerAggregate), int64(i%minPerAggregate)+1))
		}
		if err := b.appendAll(t, events...); err != nil {
			t.Fatal(err)
		}
	}
	s := newScanSchedule()
	s.started(datedLow{snapshot: queue.Beginning})
	for range 10 { // a page that was cut short comes again
		if r.inFlight.reserve(byClaim) {
			if err := r.claimNew(t.Context(), &c, nil, claimed); err != nil {
				t.Fatal(err)
			}
		}
		if r.inFlight.reserve(byScan) {
			if err := r.scan(t.Context(), s, actScanPage, claimed); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := r.inFlight.total(); n != maxEvents {
		t.Errorf("%d events are held, want %d", n, maxEvents)
	}
	for _, claim := range []claimant{byScan, byClaim, byTurn} {
		r.inFlight.waiting = [claimants]bool{true, true, true}
		r.inFlight.served = [claimants]int{1, 1, 1}
		r.inFlight.served[claim] = 0
		if r.inFlight.reserve(claim) {
			t.Error("there was room for one more")
		}
	}
	for len(claimed) > 0 {
		r.inFlight.remove(<-claimed)
	}
	r.inFlight.waiting, r.inFlight.served = [claimants]bool{true, true, true}, [claimants]int{3, 1, 2}
	for _, next := range []claimant{byScan, byTurn, byClaim} {
		for by := range claimants {
			if by != next && r.inFlight.reserve(by) {
				t.Errorf("%d has room, and it is the turn of %d", by, next)
			}
		}
		if !r.inFlight.reserve(next) {
			t.Fatalf("%d has no room", next)
		}
		r.inFlight.release()
	}
}

// The broker would reject each event of such a topic by itself.
func TestATopicIsNamedInFull(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ended, end := context.WithCancel(t.Context())
	end() // so that a Run that takes the name returns
	for _, name := range []string{"video.events", "projects/demo/topics/", "projects/demo/subscriptions/video", "/projects/demo/topics/video", ""} {
		r := NewRelay(b.db, b.client, map[string]string{"video": name}, slog.New(slog.DiscardHandler), func() {}, Options{})
		if err := r.Run(ended); err == nil || !strings.Contains(err.Error(), strconv.Quote(name)) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
