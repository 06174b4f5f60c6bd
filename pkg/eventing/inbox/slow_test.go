package inbox

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
)

// The subscription's ack deadline is 10 seconds, the shortest there is. While
// the stream lives the client extends it.
func TestHandlerSlowerThanTheAckDeadlineRunsOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var calls atomic.Int64
	b.setSpoil(func(e eventing.Event) error {
		if e.AggregateID == "slow" {
			calls.Add(1)
			backoff.Sleep(t.Context(), 12*time.Second, nil)
		}
		return nil
	})
	b.consume(t)
	b.consume(t)
	b.publish(t, event("slow", 1))
	b.eventually(t, 1, version, "slow")
	if n := calls.Load(); n != 1 {
		t.Errorf("the handler ran %d times", n)
	}
	if n := b.count(t, `SELECT count(*) FROM inbox WHERE attempts = 0 AND status = 'done'`); n != 1 {
		t.Error("the slow event is not done, or has an attempt against it")
	}
}

// A lease that was lost brings the event to another consumer while the first
// still works: the second waits on the inbox row, and then finds it done.
func TestSecondRunWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	entered, goOn := make(chan struct{}), make(chan struct{})
	var calls atomic.Int64
	b.setSpoil(func(eventing.Event) error {
		if calls.Add(1) == 1 {
			close(entered)
			<-goOn
		}
		return nil
	})
	e := event("a", 1)
	first, second := b.consumer(t), b.consumer(t)
	ended := make(chan []*delivery, 2)
	go func() { ended <- first.process(t.Context(), []*delivery{delivered(e)}) }()
	<-entered
	go func() { ended <- second.process(t.Context(), []*delivery{delivered(e)}) }()
	b.eventually(t, 1, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	close(goOn)
	for range 2 {
		if left := <-ended; len(left) != 0 {
			t.Error("not settled")
		}
	}
	if calls.Load() != 1 || b.count(t, effects, "a") != 1 {
		t.Errorf("%d runs, %d effects; want one of each", calls.Load(), b.count(t, effects, "a"))
	}
}

// A statement that always takes too long is its event's fault, and not taken for an outage
// that holds up all others.
func TestSlowStatementIsNoOutage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	c.functions().apply = each(func(ctx context.Context, tx pgx.Tx, change Change) (Outcome, error) {
		if change.Event.AggregateID == "slow" {
			if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = '20ms'; SELECT pg_sleep(10)`); err != nil {
				return 0, err
			}
		}
		return b.apply(ctx, tx, change)
	})
	c.finish(t, delivered(event("a", 1)), delivered(event("slow", 1)), delivered(event("z", 1)))
	if n := b.count(t, withDone); n != 2 {
		t.Errorf("%d events are done, want those that are quick", n)
	}
	dead := b.deadLettered("")
	if len(dead) != 1 || !strings.Contains(dead[0].Attributes[AttrDeadLetterReason], "statement timeout") {
		t.Fatalf("dead letters %v, want the slow event with its reason", dead)
	}
	if n := b.count(t, `SELECT attempts FROM inbox WHERE status = 'dead'`); n != maxAttempts {
		t.Errorf("%d attempts, want %d", n, maxAttempts)
	}
}

// The same while the database is unavailable is no event's fault.
func TestTimeLimitDuringAnOutageSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	if f := c.classify(t.Context(), nil, handlerError{context.DeadlineExceeded}, time.Now()); f != timedOut {
		t.Errorf("with a database: %v", f)
	}
	b.db.Close()
	if f := c.classify(t.Context(), nil, handlerError{context.DeadlineExceeded}, time.Now()); f != outage {
		t.Errorf("without: %v", f)
	}
}

// A transaction also meets a time limit if the database, its network or its disk stood still for as long, and works again
// when the limit has passed. So the first limit of an event alone spends no attempt. A handler that is slow each time fails.
func TestTheFirstTimeLimitOfAnEventSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meet              func(*bench, context.Context, *testing.T, pgx.Tx) error
		times             int
		done, dead, tries int
	}{
		"idle, once":            {(*bench).idle, 1, 3, 0, 2},
		"idle, each time":       {(*bench).idle, math.MaxInt, 2, 1, 1 + maxAttempts},
		"unanswered, once":      {(*bench).unanswered, 1, 3, 0, 2},
		"unanswered, each time": {(*bench).unanswered, math.MaxInt, 2, 1, 1 + maxAttempts},
		"canceled, once":        {(*bench).canceled, 1, 3, 0, 2},
		"canceled, each time":   {(*bench).canceled, math.MaxInt, 2, 1, 1 + maxAttempts},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			consumer, tries := b.consumer(t), 0
			consumer.functions().apply = each(func(ctx context.Context, tx pgx.Tx, change Change) (Outcome, error) {
				if change.Event.AggregateID == "limited" {
					tries++
					if tries <= c.times {
						return 0, c.meet(b, ctx, t, tx)
					}
				}
				return b.apply(ctx, tx, change)
			})
			consumer.finish(t, delivered(event("limited", 1)))
			consumer.finish(t, delivered(event("a", 1)), delivered(event("z", 1)))
			if tries < c.tries { // more on a machine that is so busy that the smallest write takes too long, too
				t.Errorf("%d tries, want %d", tries, c.tries)
			}
			b.isSettled(t, c.done, c.dead)
		})
	}
}

// A statement of a handler can end the server's process of its connection, for example by its memory. Each time, Postgres
// ends all other sessions, too, and recovers. If that were an outage each time, no event would be applied any more.
func TestAnEventThatBreaksItsConnectionFails(t *testing.T) {
	t.Parallel()
	const halved = 2 // the batch, and its second half
	for name, c := range map[string]struct{ times, done, dead, tries int }{
		"twice":     {halved + 2, 3, 0, halved + 3},
		"each time": {math.MaxInt, 2, 1, halved + maxBreaks - 1 + maxAttempts},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			consumer, tries, heard := b.consumer(t), 0, &complaints{}
			consumer.log = slog.New(heard)
			consumer.functions().apply = each(func(ctx context.Context, tx pgx.Tx, change Change) (Outcome, error) {
				if change.Event.AggregateID == "bad" {
					tries++
					if tries <= c.times {
						_ = tx.Conn().PgConn().Conn().Close()
						_, err := tx.Exec(ctx, `SELECT 1`)
						return 0, err
					}
				}
				return b.apply(ctx, tx, change)
			})
			consumer.finish(t, delivered(event("a", 1)), delivered(event("bad", 1)), delivered(event("z", 1)))
			if tries != c.tries {
				t.Errorf("%d tries, want %d", tries, c.tries)
			}
			if n, broken := heard.n.Load(), min(tries, c.times); n < int64(broken) {
				t.Errorf("%d warnings about %d broken connections", n, broken)
			}
			b.isSettled(t, c.done, c.dead)
		})
	}
}

// A handler that ignores its context can return without an error after the time of its transaction. If its COMMIT, which
// fails then, were an outage, the event would be tried for ever.
func TestAHandlerThatIgnoresItsTimeIsSlow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	c.functions().apply = each(func(ctx context.Context, _ pgx.Tx, _ Change) (Outcome, error) {
		end()
		<-ctx.Done()
		return Applied, nil
	})
	first := &pgx.Batch{}
	begin(first, maxLockWait)
	_, err := c.transact(overdue{ctx}, first, []*delivery{delivered(event("a", 1))})
	if f := faultOf(err); f != timedOut {
		t.Errorf("%v is of the class %v", err, f)
	}
}

// overdue is a context that ends as if its time were over.
type overdue struct{ context.Context } //nolint:containedctx // it is a context itself

func (o overdue) Err() error {
	if o.Context.Err() == nil {
		return nil
	}
	return context.DeadlineExceeded
}

// isSettled checks how many events are done and how many are dead letters, and that those that are done have spent no attempt.
func (b *bench) isSettled(t *testing.T, done, dead int) {
	t.Helper()
	if n := b.count(t, withDone); n != done {
		t.Errorf("%d events are done, want %d", n, done)
	}
	if n := len(b.deadLettered("")); n != dead {
		t.Errorf("%d dead letters, want %d", n, dead)
	}
	if n := b.count(t, `SELECT count(*) FROM inbox WHERE status = 'done' AND attempts > 0`); n != 0 {
		t.Error("an attempt was spent")
	}
}

// unanswered gives a statement up before its answer comes.
func (*bench) unanswered(ctx context.Context, _ *testing.T, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err := tx.Exec(ctx, `SELECT pg_sleep(10)`)
	return err
}

// canceled has the database cancel a statement at its limit.
func (*bench) canceled(ctx context.Context, _ *testing.T, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `SET LOCAL statement_timeout = '10ms'; SELECT pg_sleep(10)`)
	return err
}

// idle leaves the transaction idle until the database has ended it.
func (b *bench) idle(ctx context.Context, t *testing.T, tx pgx.Tx) error {
	t.Helper()
	var session int
	err := tx.QueryRow(ctx, `SELECT pg_backend_pid() FROM set_config('idle_in_transaction_session_timeout', '10ms', true)`).Scan(&session)
	if err != nil {
		return err
	}
	b.eventually(t, 0, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, session)
	_, err = tx.Exec(ctx, `SELECT 1`)
	return err
}
