package queue_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const unpublished = `SELECT count(*) FROM outbox WHERE published_at IS NULL`

func TestSettleIsFenced(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "a", 1, 2)
	w := b.page(t, as("stale"))
	batch := w.Batches[0]
	b.exec(t, `UPDATE outbox SET locked_at = now() - interval '1 hour' WHERE lock_token IS NOT NULL`)
	b.scan(t, "successor")
	lost := settle(t, b, "stale", queue.Settlement{Batch: batch, Published: 1, Failure: &queue.Failure{Reason: "x", Refused: true, Park: true}})
	if lost != 1 {
		t.Errorf("settle with a lost lease: lost %d, want 1", lost)
	}
	if n := b.count(t, unpublished+` AND parked_at IS NULL AND publish_attempts = 0`); n != 2 {
		t.Error("a relay without the lease changed a row")
	}
	if lost := settle(t, b, "successor", queue.Settlement{Batch: batch, Published: 2}); lost != 0 {
		t.Errorf("settle with the lease: lost %d", lost)
	}
	if n := b.count(t, unpublished+` OR lock_token IS NOT NULL`); n != 0 {
		t.Error("the rows are not published")
	}
}

// The broker's message about one event must not keep others from being marked.
func TestSettleWithAReasonThatCannotBeStored(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "a", 1, 1)
	b.append(t, "b", 1, 1)
	w := b.page(t, as("t"))
	settle(t, b, "t", queue.Settlement{Batch: w.Batches[0], Published: 1},
		queue.Settlement{Batch: w.Batches[1], Failure: &queue.Failure{Reason: "not \x00 \xff here " + strings.Repeat("x", 1<<20), Refused: true}})
	if n := b.count(t, unpublished+` AND last_error LIKE 'not ? ? here%' AND length(last_error) <= 1000`); n != 1 {
		t.Error("the reason is not kept, as far as it can be")
	}
}

// An event that was marked by hand while it was in flight stays published, whatever the broker says.
func TestSettleLeavesAPublishedEvent(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "a", 1, 2)
	w := b.page(t, as("t"))
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE version = 2`)
	settle(t, b, "t", queue.Settlement{
		Batch: w.Batches[0], Published: 1, Failure: &queue.Failure{Reason: "bad", RetryIn: time.Hour, Refused: true, Park: true},
	})
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE parked_at IS NOT NULL OR publish_attempts > 0 OR last_error IS NOT NULL`); n != 0 {
		t.Error("a published event is parked")
	}
}

func TestSettleWritesEachSettlement(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for _, id := range []string{"back", "done", "part", "refused", "deferred", "by hand"} {
		b.append(t, id, 1, 2)
	}
	w := b.page(t, as("t"))
	b.exec(t, `UPDATE outbox SET parked_at = now(), last_error = 'by hand' WHERE aggregate_id = 'by hand' AND version = 1`)
	var outcomes []queue.Settlement
	for _, batch := range w.Batches {
		outcomes = append(outcomes, map[string]queue.Settlement{
			"back":     {Batch: batch},
			"done":     {Batch: batch, Published: 2},
			"part":     {Batch: batch, Published: 1},
			"refused":  {Batch: batch, Published: 1, Failure: &queue.Failure{Reason: "bad", RetryIn: time.Hour, Refused: true, Park: true}},
			"deferred": {Batch: batch, Failure: &queue.Failure{Reason: "away", RetryIn: time.Hour}},
			"by hand":  {Batch: batch, Failure: &queue.Failure{Reason: "away", RetryIn: time.Hour}},
		}[batch[0].AggregateID])
	}
	if lost := settle(t, b, "t", outcomes...); lost != 0 {
		t.Errorf("lost %d", lost)
	}
	for what, rows := range map[string]int{
		`lock_token IS NOT NULL`: 0,
		`aggregate_id = 'by hand' AND version = 1 AND parked_at IS NOT NULL AND last_error = 'by hand'`:                                                1,
		`aggregate_id = 'back' AND published_at IS NULL AND next_retry_at IS NULL`:                                                                     2,
		`aggregate_id = 'done' AND published_at IS NOT NULL`:                                                                                           2,
		`aggregate_id = 'part' AND version = 1 AND published_at IS NOT NULL`:                                                                           1,
		`aggregate_id = 'part' AND version = 2 AND published_at IS NULL`:                                                                               1,
		`aggregate_id = 'refused' AND version = 1 AND published_at IS NOT NULL`:                                                                        1,
		`aggregate_id = 'refused' AND version = 2 AND parked_at IS NOT NULL AND publish_attempts = 1 AND last_error = 'bad' AND next_retry_at IS NULL`: 1,
		`aggregate_id = 'deferred' AND version = 1 AND parked_at IS NULL AND publish_attempts = 0 AND next_retry_at > now() + interval '59m'`:          1,
	} {
		if n := b.count(t, `SELECT count(*) FROM outbox WHERE `+what); n != rows {
			t.Errorf("%s: %d rows, want %d", what, n, rows)
		}
	}
}

// Followed tells the relay whether an event waits behind a published one. An event behind
// an unpublished one does not count.
func TestSettleSeesWhatFollows(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	fault := &queue.Failure{Reason: "away", RetryIn: time.Hour}
	for name, tc := range map[string]struct {
		published int
		fault     *queue.Failure
		appears   bool // version 3, after the claim
		want      bool
	}{
		"nothing":                  {published: 2},
		"the rest of the batch":    {published: 1, want: true},
		"what has appeared":        {published: 2, appears: true, want: true},
		"behind what was refused":  {published: 1, fault: fault, appears: true},
		"behind what was not sent": {appears: true},
	} {
		since := b.snapshot(t)
		b.append(t, name, 1, 2)
		w, err := b.ClaimNew(t.Context(), as(name), since, nil)
		b.append(t, "other than "+name, 1, 2)
		if err != nil || len(w.Batches) != 1 || len(w.Batches[0]) != 2 {
			t.Fatalf("%s: claimed %v, %v", name, w.Batches, err)
		}
		if tc.appears {
			b.append(t, name, 3, 3)
		}
		got, err := b.Settle(t.Context(), name, []queue.Settlement{{Batch: w.Batches[0], Published: tc.published, Failure: tc.fault}})
		if err != nil || got.Followed != tc.want || len(got.Lost) != 0 || len(got.Locked) != 0 {
			t.Errorf("%s: %+v, %v; want followed %v", name, got, err, tc.want)
		}
	}
}

// A relay dies when it has settled a part of a retry. All relays have passed over the event
// behind it, so that becomes a retry. If it has a retry time already, that stays.
func TestWhatIsBehindARetryIsOneNext(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for _, id := range []string{"cut", "part", "whole", "lost", "parked", "put off"} {
		b.append(t, id, 1, 4)
	}
	b.exec(t, `UPDATE outbox SET next_retry_at = now() WHERE version = 1`)
	b.exec(t, `UPDATE outbox SET parked_at = now() WHERE version = 3 AND aggregate_id = 'parked'`)
	b.exec(t, `UPDATE outbox SET next_retry_at = now() + interval '1 min' WHERE version = 3 AND aggregate_id = 'put off'`)
	limits := as("t")
	limits.PerAggregate = 2
	got, _, err := b.ClaimRetries(t.Context(), limits)
	if err != nil || len(got.Batches) != 6 || !got.Batches[0][0].Retry || got.Batches[0][1].Retry {
		t.Fatalf("claimed %+v, %v", got.Batches, err)
	}
	var outcomes []queue.Settlement
	for _, batch := range got.Batches {
		o := queue.Settlement{Batch: batch, Published: 2}
		switch batch[0].AggregateID {
		case "part":
			o.Published = 1
		case "lost":
			b.exec(t, `UPDATE outbox SET lock_token = 'another' WHERE aggregate_id = 'lost' AND version = 1`)
		case "whole":
			b.exec(t, `DELETE FROM outbox WHERE aggregate_id = 'whole' AND version > 2`)
		}
		outcomes = append(outcomes, o)
	}
	settle(t, b, "t", outcomes...)
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE published_at IS NOT NULL AND next_retry_at IS NOT NULL`); n != 0 {
		t.Errorf("%d published events are among the retries", n)
	}
	next, _, err := b.ClaimRetries(t.Context(), as("successor"))
	if err != nil {
		t.Fatal(err)
	}
	want(t, "by another relay", claims{"cut": {3, 4}, "part": {2, 3, 4}}, versions(next.Batches))
	if n := b.count(t, unpublished+` AND next_retry_at > now() + interval '50 s' AND aggregate_id = 'put off'`); n != 1 {
		t.Error("what was put off is not any more")
	}
}

func TestRenewKeepsOthersOut(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "a", 1, 1)
	w := b.page(t, as("holder"))
	heads := []uuid.UUID{w.Batches[0].Head()}
	b.exec(t, `UPDATE outbox SET locked_at = now() - interval '19 seconds'`)
	if held, lost, err := b.Renew(t.Context(), "holder", heads); len(held) != 1 || len(lost) != 0 || err != nil {
		t.Fatalf("renew: %v, %v, %v", held, lost, err)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE locked_at > now() - interval '5 seconds'`); n != 1 {
		t.Error("the lease was not extended")
	}
	if held, lost, err := b.Renew(t.Context(), "stranger", heads); len(held) != 0 || len(lost) != 1 || err != nil {
		t.Errorf("renewing what another holds: %v, %v, %v", held, lost, err)
	}
}

// A settling that hands an event back waits for the claim of another relay, which has locked the row. The snapshot of the
// settling is from before the claim.
func TestSettleSeesAClaimThatItWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "a", 1, 1)
	batch := b.page(t, as("t")).Batches[0]
	for {
		tx := pgtest.Begin(t, b.db)
		t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
		pgtest.Exec(t, tx, `UPDATE outbox SET lock_token = 'another', locked_at = now()`)
		settled := make(chan queue.Settled, 1)
		go func() {
			s, err := b.Settle(t.Context(), "t", []queue.Settlement{{Batch: batch}})
			if err != nil {
				t.Error(err)
			}
			settled <- s
		}()
		for b.count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0 && len(settled) == 0 {
			runtime.Gosched()
		}
		pgtest.End(t, tx.Commit)
		got := <-settled
		if len(got.Locked) > 0 { // the machine is slow, and the settling has not waited so long
			b.exec(t, `UPDATE outbox SET lock_token = 't'`)
			continue
		}
		if len(got.Lost) != 1 || len(got.Elsewhere) != 1 {
			t.Errorf("lost %d, elsewhere %d, want 1 each", len(got.Lost), len(got.Elsewhere))
		}
		return
	}
}
