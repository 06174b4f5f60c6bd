package outbox

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// handOver commits an event with a handover, and does not say so.
func (b *bench) handOver(t *testing.T, r *Relay, events ...eventing.Event) *Handover {
	t.Helper()
	h := r.Handover()
	if err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error { return h.Append(t.Context(), tx, nil, events...) }); err != nil {
		t.Fatal(err)
	}
	return h
}

// handedOver returns a relay that has joined the others, whose test makes each of its claims. Its
// events wait in the channel.
func (b *bench) handedOver(t *testing.T) (*Relay, chan *leasedBatch) {
	t.Helper()
	r, claimed := b.newRelay(t), make(chan *leasedBatch, 100)
	var s claimSchedule
	r.step(t.Context(), &s, claimed)
	r.scanDue(t, claimed)
	r.inFlight.acceptHandovers(claimed)
	return r, claimed
}

// claim makes one claim of new events.
func (r *Relay) claim(t *testing.T, claimed chan<- *leasedBatch) {
	t.Helper()
	var s claimSchedule
	r.step(t.Context(), &s, claimed)
}

// expireAt looks for expired handovers as at the time now, with a reading of the clock from then.
func (r *Relay) expireAt(now time.Time) {
	clock := *r.clock.Load()
	clock.Time, clock.Answered = clock.At(now), now
	r.clock.Store(&clock)
	r.expireHandovers(now)
}

func (f *inFlight) opened() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.handovers)
}

// A relay publishes a handed over event without a claim. A claim would have to wait: it is
// stopped here.
func TestHandedOverEventNeedsNoClaim(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h := b.handOver(t, r, event("a", 1))
	if len(claimed) != 0 || r.inFlight.events != 1 || r.inFlight.total() != 0 {
		t.Errorf("%d batches with the publishers, %d events in flight, before the commit is known", len(claimed), r.inFlight.events)
	}
	if !h.Committed() || len(claimed) != 1 || r.inFlight.total() != 1 {
		t.Fatalf("%d batches with the publishers, %d events in flight", len(claimed), r.inFlight.total())
	}
	got := <-claimed
	if got.low != h.low || got.lowBehind != h.low || h.low.snapshot == "" {
		t.Errorf("the lows are %v and %v, want %v", got.low, got.lowBehind, h.low)
	}
	if want := h.opened.Add(queue.LeaseTime - h.clockError); h.clockError <= 0 || !got.leaseUntil.Equal(want) {
		t.Errorf("the lease lasts until %s, want %s", got.leaseUntil, want)
	}
	if rep := r.send(t.Context(), t.Context(), got); rep.published != 1 {
		t.Fatalf("%+v", rep)
	}
	if v := b.sent("a"); !slices.Equal(v, []int64{1}) {
		t.Errorf("the broker has versions %v", v)
	}
	if h.Committed() {
		t.Error("a handover can be used twice")
	}
}

// An event is the same, whether it comes from its transaction or from the table.
func TestHandedOverEventIsAsClaimed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	plain, full := event("plain", 1), event("full", 7)
	plain.Payload, plain.OccurredAt = nil, time.Now().In(time.FixedZone("", 3600))
	full.SourceEventID, full.PreviousEventID, full.TenantID = uuid.New(), uuid.New(), "acme"
	full.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var handed []queue.Event
	for _, e := range []eventing.Event{plain, full} {
		if h := b.handOver(t, r, e); !h.Committed() {
			t.Fatalf("%s is not handed over", e.AggregateID)
		}
		handed = append(handed, (<-claimed).events[0])
	}
	b.exec(t, `UPDATE outbox SET lock_token = NULL, locked_at = NULL`)
	other, again := b.newRelay(t), make(chan *leasedBatch, 100)
	b.claimAll(t, other, again)
	if len(again) != 2 {
		t.Fatalf("%d batches claimed", len(again))
	}
	for range handed {
		got := (<-again).events[0]
		if !slices.ContainsFunc(handed, func(e queue.Event) bool { return reflect.DeepEqual(e, got) }) {
			t.Errorf("claimed\n\t%+v\nnot handed over among\n\t%+v", got, handed)
		}
	}
}

// No relay claims an event that was handed over, until the lease has run out.
func TestHandedOverEventIsLeased(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, _ := b.handedOver(t)
	other, claimed := b.handedOver(t)
	b.handOver(t, r, event("a", 1))
	b.append(t, "b", 1, 1)
	b.claimAll(t, other, claimed)
	b.claimAll(t, r, claimed)
	if len(claimed) != 1 || (<-claimed).events[0].AggregateID != "b" {
		t.Error("the leased event was claimed, or the other one was not")
	}
	b.exec(t, `UPDATE outbox SET locked_at = now() - interval '1 hour'`)
	b.claimAll(t, other, claimed)
	if len(claimed) != 1 || (<-claimed).events[0].AggregateID != "a" { // b is in flight already
		t.Error("the event whose lease has run out was not claimed")
	}
}

// Events that are handed over are counted, and events that are claimed are not. So an operator sees
// whether the handovers have stopped.
func TestHandoversAreCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	reader := metric.NewManualReader()
	var err error
	if r.metrics.handedOver, err = metric.NewMeterProvider(metric.WithReader(reader)).Meter("").Int64Counter("handed_over"); err != nil {
		t.Fatal(err)
	}
	if !b.handOver(t, r, event("a", 1)).Committed() || b.handOver(t, r, event("b", 1), event("c", 1)).Committed() {
		t.Fatal("of one event and two, another than the one is handed over")
	}
	r.claim(t, claimed)
	var collected metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &collected); err != nil {
		t.Fatal(err)
	}
	points := collected.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[int64]).DataPoints
	if len(points) != 1 || points[0].Value != 1 || len(claimed) != 3 {
		t.Errorf("counted %+v of %d events in flight, want one of 3", points, len(claimed))
	}
}

// An event behind an unpublished one gets no lease, and is published behind it.
func TestHandoverBehindAnUnpublishedEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	first, second := b.handOver(t, r, event("a", 1)), b.handOver(t, r, event("a", 2))
	if n := b.count(t, leased); n != 1 || r.inFlight.opened() != 1 {
		t.Errorf("%d rows are leased, %d handovers are open", n, r.inFlight.opened())
	}
	if second.Committed() || !first.Committed() || len(claimed) != 1 {
		t.Errorf("%d batches with the publishers", len(claimed))
	}
	r = b.start(t)
	b.exec(t, `UPDATE outbox SET locked_at = now() - interval '1 hour' WHERE locked_at IS NOT NULL`)
	b.eventually(t, 0, unpublished)
	third := b.handOver(t, r, event("a", 3))
	if !third.Committed() {
		t.Error("the next event is not handed over, although all others are published")
	}
	b.eventually(t, 0, unpublished)
	firstSightings(t, b.sent("a"), 3)
}

// A relay that runs publishes what it is handed, in order, whatever else it claims.
func TestHandoversAmongClaims(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.start(t)
	b.poll(t, func() bool { return r.followUps.due().registered }, "the relay does not join")
	handed := 0
	for v := range int64(30) {
		for a := range 10 {
			h := r.Handover()
			name := fmt.Sprint("a", a)
			err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error { return h.Append(t.Context(), tx, nil, event(name, v+1)) })
			if err != nil {
				t.Fatal(err)
			}
			if h.Committed() {
				handed++
			} else {
				r.Wake()
			}
		}
	}
	b.eventually(t, 0, unpublished)
	for a := range 10 {
		firstSightings(t, b.sent(fmt.Sprint("a", a)), 30)
	}
	if handed < 10 {
		t.Errorf("%d events were handed over", handed)
	}
	b.poll(t, func() bool { return r.inFlight.total() == 0 }, "the relay still holds what it has marked")
}

// slowContext blocks in its first value, which Append asks for the trace.
type slowContext struct {
	context.Context //nolint:containedctx // it is a context
	asked, goOn     chan struct{}
	once            *sync.Once
}

func (c slowContext) Value(key any) any {
	c.once.Do(func() {
		close(c.asked)
		<-c.goOn
	})
	return c.Context.Value(key)
}

// A relay that ends while Append runs hands no empty event back.
func TestHandoverAtTheEndKnowsItsEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h := r.Handover()
	ctx := slowContext{t.Context(), make(chan struct{}), make(chan struct{}), &sync.Once{}}
	done := make(chan error, 1)
	go func() {
		done <- pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error { return h.Append(ctx, tx, nil, event("a", 1)) })
	}()
	<-ctx.asked
	r.inFlight.endHandovers()
	close(ctx.goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for len(claimed) > 0 {
		if back := <-claimed; back.events.Head() == uuid.Nil {
			t.Error("an empty event is handed back")
		}
	}
}

// A relay that ends hands back what it was handed over, and what it may still be handed over.
func TestHandoversAtTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.newRelay(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	b.poll(t, func() bool { return r.followUps.due().registered }, "the relay does not join")
	open := b.handOver(t, r, event("open", 1))
	stop()
	<-ended
	if open.Committed() || r.Handover().Committed() {
		t.Error("a relay that has ended accepts events")
	}
	b.handOver(t, r, event("late", 1))
	if r.inFlight.opened() != 0 {
		t.Errorf("%d handovers are open", r.inFlight.opened())
	}
	if n := b.count(t, leased); n != 0 || r.inFlight.total() != 0 {
		t.Errorf("%d leases are left, %d events in flight", n, r.inFlight.total())
	}
	b.start(t)
	b.eventually(t, 0, unpublished)
}

// While a relay ends, an accepted event is handed back. The caller wakes the other relays.
func TestHandoverToAnEndingRelay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h := b.handOver(t, r, event("a", 1))
	r.inFlight.refuseHandovers()
	if h.Committed() || len(claimed) != 1 {
		t.Errorf("accepted, or %d batches with the publishers", len(claimed))
	}
	b.handOver(t, r, event("b", 1))
	if n := b.count(t, leased); n != 1 || r.inFlight.opened() != 0 {
		t.Errorf("%d leases, %d handovers are open", n, r.inFlight.opened())
	}
}

// The payload of the message is the row's, even if the caller uses its slice again.
func TestHandoverCopiesThePayload(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	e := event("a", 1)
	h := b.handOver(t, r, e)
	clear(e.Payload)
	h.Committed()
	if got := (<-claimed).events[0].Payload; string(got) != "1" {
		t.Errorf("%q", got)
	}
}

// While a handover is open, the relay's low is not later than the event. Otherwise an event would be
// lost for a long time if the relay died before it knew about the commit.
func TestOpenHandoverHoldsTheLow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	before := r.followUps.low(r.inFlight)
	h := b.handOver(t, r, event("a", 1))
	s := claimSchedule{}
	for v := range int64(3) {
		b.append(t, "b", v+1, v+1)
		s.pollAt = time.Time{}
		r.step(t.Context(), &s, claimed)
	}
	for len(claimed) > 0 {
		r.inFlight.remove(<-claimed)
	}
	r.followUps.published = versions{}
	if low := r.followUps.low(r.inFlight); queue.Earliest(low, before) != low {
		t.Errorf("the low is %s with an open handover from %s", low, before)
	}
	if !h.Committed() {
		t.Fatal("not handed over")
	}
	if low := r.followUps.low(r.inFlight); queue.Earliest(low, before) != low {
		t.Errorf("the low is %s with an event in flight from %s", low, before)
	}
	r.inFlight.remove(<-claimed)
	if low := r.followUps.low(r.inFlight); queue.Earliest(low, before) == low {
		t.Errorf("the low stays at %s", low)
	}
}

// A claim may find the event first, if the transaction lasted longer than the lease.
func TestHandoverOfAClaimedEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h := b.handOver(t, r, event("a", 1))
	b.exec(t, `UPDATE outbox SET locked_at = now() - interval '1 hour'`)
	b.claimAll(t, r, claimed)
	if !h.Committed() || len(claimed) != 1 || r.inFlight.total() != 1 {
		t.Errorf("%d batches with the publishers, %d in flight", len(claimed), r.inFlight.total())
	}
}

// The relay takes nothing whose lease could end during the request. It hands the event back.
func TestHandoverWithAShortLease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h := b.handOver(t, r, event("a", 1))
	h.opened = time.Now().Add(publishTimeout/2 - queue.LeaseTime)
	if h.Committed() || (<-claimed).unresolved != h {
		t.Error("an event without time for its request is not handed back")
	}
}
