package outbox

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
	"example.com/lockstep/pkg/eventing/tenant"
	"example.com/lockstep/pkg/eventing/txn"
)

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
	blocker := pgtest.Begin(t, b.db)
	pgtest.Exec(t, blocker, `SELECT pg_advisory_xact_lock(7)`)
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
	pgtest.End(t, blocker.Commit)
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
	var back *leasedBatch
	select {
	case back = <-claimed:
	case <-time.After(patience):
		t.Fatal("the relay does not look for the event: was a handover opened?")
	}
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
	tx := pgtest.Begin(t, b.db)
	if err := h.Append(t.Context(), tx, nil, event("a", 1)); err != nil {
		t.Fatal(err)
	}
	r.inFlight.handBack(h)
	b.handBack(t, r, claimed)
	if r.inFlight.opened() != 1 || r.inFlight.events != 1 || r.scanDue(t, claimed) {
		t.Errorf("%d handovers are open, %d events in flight, or a scan is due", r.inFlight.opened(), r.inFlight.events)
	}
	pgtest.End(t, tx.Commit)
	r.inFlight.handBack(h)
	b.handBack(t, r, claimed)
	if !r.scanDue(t, claimed) || len(claimed) != 1 || r.inFlight.opened() != 0 {
		t.Errorf("%d events found, %d handovers are open", len(claimed), r.inFlight.opened())
	}
}

// To hand an event back that does not exist is no loss of a lease, and counts as nothing.
func TestUnknownOutcomesAreNotCounted(t *testing.T) {
	t.Parallel()
	u := &unsettled{publishResult: publishResult{batch: &leasedBatch{events: queue.Batch{{Event: event("a", 1)}}}}, mayBeGone: true}
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
	err := txn.NewWriter(b.db).Write(t.Context(), tenant.All(), "", func(tx *txn.Tx) error {
		with := &pgx.Batch{}
		with.Queue(`SELECT 1`).QueryRow(func(pgx.Row) error { return errors.New("the caller's own") })
		return h.Append(t.Context(), tx.WithCommit(), with, event("a", 1))
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
	u := &unsettled{publishResult: publishResult{batch: <-claimed}, mayBeGone: true}
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

// A handover whose outcome stays unknown is closed when its lease is over. While its handover is open, the relay
// looks for the event again. Otherwise a claim has found the event in the meantime, and a scan must.
func TestAnUnknownOutcomeIsGivenUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h := b.handOver(t, r, event("a", 1))
	r.inFlight.handBack(h)
	u := &unsettled{publishResult: publishResult{batch: <-claimed}, mayBeGone: true}
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
