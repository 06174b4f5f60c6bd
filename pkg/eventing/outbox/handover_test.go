package outbox

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
	"example.com/lockstep/pkg/eventing/txn"
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
	if got.low != h.low || got.lowBehind != h.low || h.low == "" {
		t.Errorf("the lows are %q and %q, want %q", got.low, got.lowBehind, h.low)
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

// A commit that the relay never learns of is published when the lease is over.
func TestHandoverWithoutAnEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.start(t)
	b.poll(t, func() bool { return r.followUps.due().registered }, "the relay does not join")
	h := b.handOver(t, r, event("a", 1))
	b.append(t, "b", 1, 1)
	b.eventually(t, 1, unpublished)
	b.exec(t, `UPDATE outbox SET locked_at = now() - interval '1 hour' WHERE locked_at IS NOT NULL`)
	r.inFlight.mu.Lock() // in the test's own time, the reading of the clock is from after the lease
	h.opened, h.since = h.opened.Add(-handoverTime), h.since.Add(-handoverTime)
	r.inFlight.mu.Unlock()
	b.eventually(t, 0, unpublished)
	if h.Committed() {
		t.Error("the handover is still open")
	}
	firstSightings(t, b.sent("a"), 1)
}

// The statement that writes the event may wait for longer than the lease lasts. The lease counts from
// before the wait, so a claim finds the event, although the relay no longer expects it.
func TestHandoverOfALateInsert(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	blocker, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blocker.Exec(t.Context(), `SELECT pg_advisory_xact_lock(7)`); err != nil {
		t.Fatal(err)
	}
	clock := *r.clock.Load()
	clock.Time = clock.Time.Add(-handoverTime) // the time that the statement is about to wait
	r.clock.Store(&clock)
	h, ended := r.Handover(), make(chan error)
	go func() {
		ended <- pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
			with := &pgx.Batch{}
			with.Queue(`SELECT pg_advisory_xact_lock(7)`)
			return h.Append(t.Context(), tx, with, event("a", 1))
		})
	}()
	b.poll(t, func() bool { return r.inFlight.opened() == 1 }, "the handover is not open")
	r.expireAt(time.Now().Add(handoverTime + time.Second))
	b.handBack(t, r, claimed)
	if r.inFlight.opened() != 0 || r.scanDue(t, claimed) || len(claimed) != 0 {
		t.Fatalf("%d handovers are open, or a scan is due for an event that is not there", r.inFlight.opened())
	}
	if err := blocker.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || h.Committed() {
		t.Fatalf("%v; or the closed handover accepts the event", err)
	}
	r.claim(t, claimed)
	if len(claimed) != 1 {
		t.Errorf("%d events claimed", len(claimed))
	}
}

// handBack settles the next batch with the publishers, which is handed back without a request.
func (b *bench) handBack(t *testing.T, r *Relay, claimed <-chan *leasedBatch) {
	t.Helper()
	back := <-claimed
	if rep := r.send(t.Context(), t.Context(), back); back.unresolved == nil || rep.requests != 0 || len(b.sent("a")) != 0 {
		t.Fatalf("an event that may not exist was published: %+v", rep)
	}
	results := make(chan publishResult, 1)
	results <- publishResult{batch: back}
	close(results)
	r.settleLoop(t.Context(), t.Context(), results)
}

// A transaction has no answer to COMMIT. The relay takes the lease from the event, so that a scan finds
// it at once.
func TestFailedHandoverIsLookedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h := b.handOver(t, r, event("a", 1))
	h.Failed()
	b.handBack(t, r, claimed)
	if n := b.count(t, leased); n != 0 || r.inFlight.total() != 0 || r.inFlight.opened() != 0 {
		t.Errorf("%d leases, %d events in flight, %d handovers", n, r.inFlight.total(), r.inFlight.opened())
	}
	if !r.scanDue(t, claimed) || len(claimed) != 1 || (<-claimed).events.Head() != h.event.ID {
		t.Error("no scan finds the event")
	}
}

// The database executes a COMMIT after the relay has looked for the event. The relay looks again.
func TestFailedHandoverThatCommitsLate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h := r.Handover()
	tx, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Append(t.Context(), tx, nil, event("a", 1)); err != nil {
		t.Fatal(err)
	}
	r.inFlight.handBack(h)
	b.handBack(t, r, claimed)
	if r.inFlight.opened() != 1 || r.inFlight.events != 1 || r.scanDue(t, claimed) {
		t.Errorf("%d handovers are open, %d events in flight, or a scan is due", r.inFlight.opened(), r.inFlight.events)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.inFlight.handBack(h)
	b.handBack(t, r, claimed)
	if !r.scanDue(t, claimed) || len(claimed) != 1 || r.inFlight.opened() != 0 {
		t.Errorf("%d events found, %d handovers are open", len(claimed), r.inFlight.opened())
	}
}

// To hand an event back that does not exist is no loss of a lease, and counts as nothing.
func TestUnknownOutcomesAreNotCounted(t *testing.T) {
	t.Parallel()
	u := &unsettled{publishResult: publishResult{batch: &leasedBatch{events: queue.Batch{{Event: event("a", 1)}}}}, again: true}
	if left := firstOf([]*unsettled{u}, []uuid.UUID{u.batch.events.Head()}); len(left) != 0 {
		t.Error("a lease counts as lost")
	}
}

// A callback of the caller fails although the statements succeed. The caller takes the transaction for
// failed, and the relay looks for the event.
func TestHandoverWithAFailedCallback(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h := r.Handover()
	err := txn.NewWriter(b.db).Write(t.Context(), "", func(tx *txn.Tx) error {
		with := &pgx.Batch{}
		with.Queue(`SELECT 1`).QueryRow(func(pgx.Row) error { return errors.New("the caller's own") })
		return h.Append(t.Context(), tx.Last(), with, event("a", 1))
	})
	if n := b.count(t, leased); err == nil || n != 1 {
		t.Fatalf("%v, %d leases", err, n)
	}
	h.Failed()
	b.handBack(t, r, claimed)
	if !r.scanDue(t, claimed) || len(claimed) != 1 {
		t.Errorf("%d events found", len(claimed))
	}
}

// The database's clock is set back while the relay waits for the end of a transaction. The lease lasts
// longer, and the handover stays open for longer. If the clock was set back so far that the lease lies
// in the future, the lease does not count.
func TestHandoverWhileTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	now := time.Now()
	h := &Handover{opened: now, since: now}
	for _, c := range []struct {
		passed, back time.Duration
		over         bool
	}{
		{0, 0, false},
		{handoverTime, 0, false},
		{handoverTime + 1, 0, true},
		{handoverTime + 1, time.Second, false},
		{handoverTime + 1, time.Hour, false},
		{time.Hour + handoverTime + 1, time.Hour, true},
		{handoverTime - 1, -time.Hour, false},
		{2 * handoverTime, time.Second, true},
	} {
		clock := queue.Clock{Time: now.Add(c.passed - c.back), Answered: now.Add(c.passed)}
		if over := h.isOver(now.Add(c.passed), clock); over != c.over {
			t.Errorf("after %s, with the clock set back by %s: over %t", c.passed, c.back, over)
		}
	}
	early := queue.Clock{Time: now.Add(queue.LeaseTime), Answered: now.Add(queue.LeaseTime)}
	if h.isOver(now.Add(time.Hour), early) {
		t.Error("a reading from before the end of the lease shows that the lease is over")
	}
}

// The answer to the statement that takes the lease from the event is lost, although it was executed. The
// next statement finds no lease, and the event is looked for all the same.
func TestHandoverWhoseHandBackHasNoAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h := b.handOver(t, r, event("a", 1))
	r.inFlight.handBack(h)
	b.exec(t, `UPDATE outbox SET lock_token = NULL, locked_at = NULL`)
	s := &settler{Relay: r, limit: maxEvents}
	u := &unsettled{publishResult: publishResult{batch: <-claimed}, again: true}
	u.settlement.Batch = u.batch.events
	s.failed(t.Context(), []*unsettled{u}, 1, errors.New("no answer"))
	if len(s.waiting) != 1 {
		t.Fatal("the statement is not tried again while the lease lasts")
	}
	s.settle(t.Context(), t.Context(), []*unsettled{u})
	if r.inFlight.opened() != 1 || !r.scanDue(t, claimed) || len(claimed) != 1 {
		t.Errorf("%d handovers are open, %d events found", r.inFlight.opened(), len(claimed))
	}
}

// While the relay looks for an event, Committed does not count. Otherwise nothing would publish the event.
func TestCommittedAfterFailed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h := b.handOver(t, r, event("a", 1))
	r.inFlight.handBack(h)
	if h.Committed() || r.inFlight.opened() != 1 {
		t.Error("accepted")
	}
	b.handBack(t, r, claimed)
	if h.Committed() || !r.scanDue(t, claimed) || len(claimed) != 1 {
		t.Errorf("%d events found", len(claimed))
	}
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

// However many transactions fail, the end of the relay does not wait for the publishers, which need the
// same lock.
func TestManyUnknownOutcomesAtTheEnd(t *testing.T) {
	t.Parallel()
	f := newInFlight()
	claimed := make(chan *leasedBatch, maxEvents)
	f.acceptHandovers(claimed)
	for range maxEvents + 1 {
		h := &Handover{event: event("a", 1), opened: time.Now()}
		if !f.open(h) {
			break
		}
		f.handBack(h)
		f.remove(<-claimed)
	}
	if len(f.handovers) != claimEvents || f.events != claimEvents {
		t.Errorf("%d handovers are open, %d events in flight", len(f.handovers), f.events)
	}
	f.endHandovers()
	if f.events > maxEvents || len(claimed) == 0 {
		t.Errorf("%d events in flight, %d batches with the publishers", f.events, len(claimed))
	}
	for h := range f.handovers {
		f.handBack(h) // nothing receives from the channel any more
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

// The lease of an event with an unknown outcome is not renewed. Otherwise the relay would close the
// handover while the row still has the lease, and no scan would take the row.
func TestUnknownOutcomeIsNotRenewed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h := b.handOver(t, r, event("a", 1))
	h.opened = time.Now().Add(renewEvery - queue.LeaseTime)
	r.inFlight.handBack(h)
	if back := <-claimed; back.unresolved != h || back.validFor(queue.LeaseTime-renewEvery) {
		t.Fatalf("%+v is not handed back in the time of renewals", back)
	}
	if due := r.inFlight.dueForRenewal(); len(due) != 0 {
		t.Errorf("%d leases are due for renewal", len(due))
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

// A relay looks for an event a last time when the lease is over.
func TestHandoverThatExpires(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h := b.handOver(t, r, event("a", 1))
	for _, passed := range []time.Duration{0, queue.LeaseTime, handoverTime} {
		r.expireAt(h.opened.Add(passed))
		if len(claimed) != 0 {
			t.Fatalf("the relay takes the lease for over after %s", passed)
		}
	}
	r.expireAt(h.opened.Add(handoverTime + 1))
	if len(claimed) != 1 {
		t.Fatal("the relay does not look for the event when the lease is over")
	}
	b.handBack(t, r, claimed)
	if r.inFlight.opened() != 0 || r.inFlight.events != 0 || !r.scanDue(t, claimed) || len(claimed) != 1 {
		t.Errorf("%d handovers are open, %d events in flight", r.inFlight.opened(), r.inFlight.events)
	}
}

// Each case is an event that the relay cannot take. It is written without a lease.
func TestRefusedHandovers(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		prepare func(b *bench, r *Relay)
		events  []eventing.Event
	}{
		"the relay has ended":          {prepare: func(_ *bench, r *Relay) { r.inFlight.acceptHandovers(nil) }},
		"the relay has not registered": {prepare: func(_ *bench, r *Relay) { r.followUps.seen = "" }},
		"the topic is paused":          {prepare: func(_ *bench, r *Relay) { r.pauses["video"].pause(causeOutage) }},
		"the tenant is held":           {prepare: func(_ *bench, r *Relay) { r.followUps.hold([]string{eventing.DefaultTenant}) }},
		"too many events in flight":    {prepare: func(_ *bench, r *Relay) { r.inFlight.events = claimEvents }},
		"too many bytes in flight":     {prepare: func(_ *bench, r *Relay) { r.inFlight.bytes = claimBytes }},
		"claims have reserved the room": {prepare: func(_ *bench, r *Relay) {
			r.inFlight.reserved = maxEvents / claimEvents
		}},
		"the database's clock is uncertain": {prepare: func(_ *bench, r *Relay) {
			c := *r.clock.Load()
			c.Asked = c.Answered.Add(-2 * mostClockError)
			r.clock.Store(&c)
		}},
		"the reading of the clock is old": {prepare: func(_ *bench, r *Relay) {
			c := *r.clock.Load()
			c.Asked, c.Answered = c.Asked.Add(-mostClockAge-time.Second), c.Answered.Add(-mostClockAge-time.Second)
			r.clock.Store(&c)
		}},
		"several events": {events: []eventing.Event{event("a", 1), event("b", 1)}},
		"the tenants' share is used up": {prepare: func(_ *bench, r *Relay) {
			now := time.Now()
			r.tenants.meet("one", now)
			r.tenants.claims("one", now)
			r.tenants.meet("two", now)
			r.inFlight.sending["one"] = allTenantsEvents
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			r, claimed := b.handedOver(t)
			if c.prepare != nil {
				c.prepare(b, r)
			}
			if c.events == nil {
				c.events = []eventing.Event{event("a", 1)}
			}
			h := b.handOver(t, r, c.events...)
			h.Failed()
			if h.Committed() || len(claimed) != 0 || len(r.inFlight.handovers) != 0 {
				t.Errorf("%d batches with the publishers, %d handovers open", len(claimed), len(r.inFlight.handovers))
			}
			if n := b.count(t, `SELECT count(*) FROM outbox WHERE lock_token IS NULL AND locked_at IS NULL`); n != len(c.events) {
				t.Errorf("%d events are free", n)
			}
		})
	}
	var none *Relay
	if none.Handover() != nil || none.Handover().Committed() {
		t.Error("no relay takes an event")
	}
}

// A second call in a transaction has no lease. The caller has to wake the relay.
func TestSecondAppendOfAHandover(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h := r.Handover()
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		return errors.Join(h.Append(t.Context(), tx, nil, event("a", 1)), h.Append(t.Context(), tx, nil, event("b", 1)))
	})
	if err != nil {
		t.Fatal(err)
	}
	if h.Committed() || len(claimed) != 1 {
		t.Errorf("%d batches with the publishers", len(claimed))
	}
}

// A transaction may roll back to a savepoint after Append, and commit the rest. The relay must not
// publish from memory an event that the table does not have. It looks for the event.
func TestHandoverWithinASavepoint(t *testing.T) {
	t.Parallel()
	exec := func(sql string) func(*testing.T, pgx.Tx) {
		return func(t *testing.T, tx pgx.Tx) {
			t.Helper()
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	cases := map[string]struct {
		before, after   string
		committed, gone bool
	}{
		"rolled back":                    {before: `SAVEPOINT one`, after: `ROLLBACK TO SAVEPOINT one`, gone: true},
		"a later savepoint, rolled back": {before: `SELECT`, after: `SAVEPOINT one; ROLLBACK TO SAVEPOINT one`, committed: true},
		"nested, rolled back": {
			before: `SAVEPOINT one; SAVEPOINT two`, after: `RELEASE SAVEPOINT two; ROLLBACK TO SAVEPOINT one`, gone: true,
		},
		"released":        {before: `SAVEPOINT one`, after: `RELEASE SAVEPOINT one`},
		"left to the end": {before: `SAVEPOINT one`, after: `SELECT`},
		"behind one":      {before: `SAVEPOINT one; RELEASE SAVEPOINT one`, after: `SELECT`, committed: true},
	}
	for name, c := range cases {
		for _, version := range []int64{1, 2} {
			t.Run(fmt.Sprint(name, ", version ", version), func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				r, claimed := b.handedOver(t)
				if version > 1 {
					b.append(t, "a", 1, 1)
					b.exec(t, `UPDATE outbox SET published_at = now()`)
					r.claim(t, claimed)
				}
				h := r.Handover()
				err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
					exec(c.before)(t, tx)
					err := h.Append(t.Context(), tx, nil, event("a", version))
					exec(c.after)(t, tx)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				if h.Committed() != c.committed {
					t.Errorf("accepted: %t", !c.committed)
				}
				if c.committed {
					if len(claimed) != 1 {
						t.Errorf("%d batches with the publishers", len(claimed))
					}
					return
				}
				b.handBack(t, r, claimed) // within half a second
				if found := r.scanDue(t, claimed); found == c.gone || found && len(claimed) != 1 {
					t.Errorf("a scan is due: %t, %d events found", found, len(claimed))
				}
			})
		}
	}
}

// A caller that tries its transaction again with the same handover does not publish the event of the
// transaction that has failed.
func TestHandoverOfTwoTransactions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h, failed := r.Handover(), errors.New("a statement behind the event")
	for _, want := range []error{failed, nil} {
		err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
			return errors.Join(h.Append(t.Context(), tx, nil, event("a", 1)), want)
		})
		if !errors.Is(err, want) {
			t.Fatal(err)
		}
	}
	if h.Committed() {
		t.Error("accepted")
	}
	b.handBack(t, r, claimed)
	r.claim(t, claimed)
	if len(claimed) != 1 || b.count(t, `SELECT count(*) FROM outbox WHERE id = '`+(<-claimed).events.Head().String()+`'`) != 1 {
		t.Error("the event of the second transaction is not claimed")
	}
}

// A transaction that the database has rolled back leaves nothing open. A lost answer does.
func TestFailedHandovers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	b.append(t, "a", 1, 1)
	bad := event("a", 2)
	bad.AggregateID = ""
	mine := errors.New("the caller's own")
	cases := map[string]struct {
		event eventing.Event
		with  func(*pgx.Batch)
		want  error
	}{
		"the version is taken":      {event: event("a", 1), want: ErrVersionTaken},
		"the event is invalid":      {event: bad},
		"a statement of the caller": {event: event("a", 2), with: func(with *pgx.Batch) { with.Queue(`SELECT 1/0`) }},
		"a callback replaces the error": {event: event("a", 2), want: mine, with: func(with *pgx.Batch) {
			with.Queue(`SELECT 1/0`).Query(func(rows pgx.Rows) error { rows.Close(); return mine })
		}},
	}
	for name, c := range cases {
		with := &pgx.Batch{}
		if c.with != nil {
			c.with(with)
		}
		h := r.Handover()
		err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error { return h.Append(t.Context(), tx, with, c.event) })
		if err == nil || c.want != nil && !errors.Is(err, c.want) || r.inFlight.opened() != 0 || r.inFlight.events != 0 {
			t.Errorf("%s: %v; %d handovers are open", name, err, r.inFlight.opened())
		}
		h.Failed()
		if h.Committed() || len(claimed) != 0 {
			t.Errorf("%s: accepted", name)
		}
	}
	h := r.Handover()
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return h.Append(ctx, tx, nil, event("a", 2))
	})
	if !errors.Is(err, context.Canceled) || r.inFlight.opened() != 0 { // nothing was sent
		t.Errorf("%v; %d handovers are open", err, r.inFlight.opened())
	}
	h = r.Handover()
	err = pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		with := &pgx.Batch{}
		with.Queue(`SELECT pg_terminate_backend(pg_backend_pid())`)
		return h.Append(t.Context(), tx, with, event("a", 2))
	})
	if err == nil || r.inFlight.opened() != 1 {
		t.Errorf("%v; %d handovers are open", err, r.inFlight.opened())
	}
}

// Handovers and claims together never hold more than the channel of the publishers has room for.
// Otherwise accept would block with the lock that the publishers need.
func TestHandoversLeaveRoomForClaims(t *testing.T) {
	t.Parallel()
	f := newInFlight()
	f.acceptHandovers(make(chan *leasedBatch, maxEvents))
	handovers := 0
	for f.open(&Handover{size: 10}) {
		handovers++
	}
	if handovers != claimEvents || f.bytes != 10*claimEvents {
		t.Errorf("%d handovers of %d bytes are open", handovers, f.bytes)
	}
	claims := 0
	for f.reserve(byClaim) {
		claims++
	}
	if claims != 2 || f.events+claims*claimEvents > maxEvents {
		t.Errorf("room for %d claims, with %d events", claims, f.events)
	}
	for h := range f.handovers {
		f.forget(h)
		f.forget(h)
	}
	if f.events != 0 || f.bytes != 0 {
		t.Errorf("%d events, %d bytes are left", f.events, f.bytes)
	}
	select {
	case <-f.room[byClaim]:
	default:
		t.Error("the claims are not notified of the room")
	}
}

// The events that are handed over count as their tenant's. So a busy tenant is held.
func TestHandoversHoldABusyTenant(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.setFault(func(ctx context.Context, _ *pubsubpb.PublishRequest, _ func(context.Context) error) error {
		<-ctx.Done()
		return ctx.Err()
	})
	r, claimed := b.handedOver(t)
	r.tenants = newTenantRates(1, "")
	other := event("other", 1)
	other.TenantID = "other"
	if !b.handOver(t, r, other).Committed() {
		t.Fatal("not handed over")
	}
	for i := range 200 {
		e := event(fmt.Sprint(i), 1)
		e.TenantID = "busy"
		if !b.handOver(t, r, e).Committed() {
			if i < sharedEvents || r.followUps.heldTenants() != 1 {
				t.Errorf("after %d events %d tenants are held", i, r.followUps.heldTenants())
			}
			return
		}
		if len(claimed) == cap(claimed) {
			for range len(claimed) {
				<-claimed
			}
		}
	}
	t.Error("a busy tenant's events are taken without limit")
}

// A handover whose outcome stays unknown is closed when its lease is over. While its handover is open, the relay
// looks for the event again. Otherwise a claim has found the event in the meantime, and a scan must.
func TestAnUnknownOutcomeIsGivenUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h := b.handOver(t, r, event("a", 1))
	r.inFlight.handBack(h)
	u := &unsettled{publishResult: publishResult{batch: <-claimed}, again: true}
	u.batch.extend(time.Now())
	s := &settler{Relay: r, limit: maxEvents}
	s.keepLeased([]*unsettled{u})
	if !r.followUps.due().scanAt.IsZero() || len(s.waiting) != 0 || r.inFlight.opened() != 1 {
		t.Error("a scan is due, although the handover is open")
	}
	r.inFlight.forget(h)
	s.keepLeased([]*unsettled{u})
	if r.followUps.due().scanAt.IsZero() || !r.followUps.mayHaveUnknownLeases() {
		t.Error("no scan is due")
	}
}

// If the event of a failed transaction is not there, the relay looks again. It does not look without room.
func TestUnknownOutcomesAreLookedForAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h := b.handOver(t, r, event("a", 1))
	h.Failed()
	r.inFlight.remove(<-claimed)
	b.poll(t, func() bool { return len(claimed) == 1 }, "the relay does not look again")
	for what, fill := range map[string]func(*inFlight){
		"events":                    func(f *inFlight) { f.events = maxEvents },
		"events of claims":          func(f *inFlight) { f.reserved = maxEvents / claimEvents },
		"bytes":                     func(f *inFlight) { f.bytes = maxBytes },
		"bytes, with one of claims": func(f *inFlight) { f.reserved, f.bytes = 1, maxBytes-claimBytes },
	} {
		f, full := newInFlight(), make(chan *leasedBatch, 1)
		f.acceptHandovers(full)
		h = &Handover{event: event("a", 1), opened: time.Now(), size: 1}
		f.open(h)
		fill(f)
		f.handBack(h)
		if len(full) != 0 {
			t.Errorf("%s: a batch has no room", what)
		}
	}
}
