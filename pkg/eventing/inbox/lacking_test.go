package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/time/rate"

	"example.com/lockstep/internal/pgtest"
)

// failing returns a consumer whose statement for the aggregates that bad names fails with code, while fails returns true.
func (b *bench) failing(t *testing.T, code string, bad func(aggregate string) bool, fails func() bool) *Consumer {
	t.Helper()
	c := b.consumer(t)
	c.functions().apply = each(func(ctx context.Context, tx pgx.Tx, change Change) (Outcome, error) {
		if bad(change.Event.AggregateID) && fails() {
			_, err := tx.Exec(ctx, fmt.Sprintf(`DO $$ BEGIN RAISE SQLSTATE '%s'; END $$`, code))
			return 0, err
		}
		return b.apply(ctx, tx, change)
	})
	return c
}

func is(name string) func(string) bool {
	return func(aggregate string) bool { return aggregate == name }
}

// A statement that only some events need may lack a column, a grant or memory. The other events do not wait for it. No
// attempt is spent, because a migration, a grant or an administrator lets the event succeed.
func TestAStatementThatTheDatabaseCannotServeBlocksItsAggregateAlone(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]string{
		"grant": "42501", "table": "42P01", "column": "42703", "function": "42883", "schema": "3F000", "type": "42704",
		"unique index": "42P10", "memory": "53200", "disk": "53100", "file": "58030",
		"page": "XX001", "index": "XX002",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, tries := newBench(t), 0
			c := b.failing(t, code, is("bad"), func() bool { tries++; return tries <= 6 })
			c.process(t.Context(), []*delivery{
				delivered(event("a", 1)), delivered(event("bad", 1)), delivered(event("bad", 2)), delivered(event("z", 1)),
			})
			if n := c.blocked.counts[lackingStatement].Load(); n != 1 {
				t.Errorf("%d aggregates are blocked", n)
			}
			b.isSettled(t, 2, 0)
			c.finish(t)
			b.isSettled(t, 4, 0)
			if v := b.count(t, version, "bad"); v != 2 {
				t.Errorf("version %d, want 2", v)
			}
		})
	}
}

// An event may need larger temporary files than its session may have. The event is dead-lettered.
func TestAnEventThatNeedsTooManyTemporaryFilesFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.failing(t, "53400", is("bad"), func() bool { return true })
	c.finish(t, delivered(event("a", 1)), delivered(event("bad", 1)), delivered(event("z", 1)))
	b.isSettled(t, 2, 1)
}

// If the statements of all events fail, the consumer waits as in an outage, and does not try each aggregate alone.
func TestAStatementThatAllEventsNeedIsAnOutage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.failing(t, "42P01", func(string) bool { return true }, func() bool { return true })
	var batch []*delivery
	for i := range maxFailing + 10 {
		batch = append(batch, delivered(event(fmt.Sprint(i), 1)))
	}
	ctx, stop := context.WithCancel(t.Context())
	left := make(chan int, 1)
	go func() { left <- len(c.process(ctx, batch)) }()
	pgtest.Until(t, "the consumer waits", func() bool { return c.FailuresInARow() >= 2 })
	if n := c.blocked.failing(); n != maxFailing {
		t.Errorf("%d aggregates are blocked, want %d", n, maxFailing)
	}
	stop()
	if n := <-left; n != 10 {
		t.Errorf("%d events are left, want 10", n)
	}
	c.blocked.running.Wait()
}

func TestClassifyErrorsOfStatements(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	state := func(code string) error { return handlerError{fmt.Errorf("apply: %w", &pgconn.PgError{Code: code})} }
	for name, test := range map[string]struct {
		err  error
		want fault
	}{
		"missing column":           {state("42703"), lacking},
		"out of memory":            {state("53200"), lacking},
		"disk full":                {state("53100"), lacking},
		"input or output":          {state("58030"), lacking},
		"broken page":              {state("XX001"), lacking},
		"broken index":             {state("XX002"), lacking},
		"temporary files":          {state("53400"), timedOut},
		"deadlock":                 {state("40P01"), outage},
		"read-only":                {state("25006"), outage},
		"shutdown":                 {state("57P01"), outage},
		"the consumer's statement": {errors.Unwrap(state("42703")), outage},
	} {
		if got := c.classify(t.Context(), nil, test.err, time.Now()); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	b.db.Close()
	if got := c.classify(t.Context(), nil, state("42703"), time.Now()); got != outage {
		t.Errorf("without a database: %v", got)
	}
}

// All events may wait for the same thing, and each of them is tried again and again.
func TestTheLogLinesOfEventsThatWaitAreLimited(t *testing.T) {
	t.Parallel()
	b, heard := newBench(t), &complaints{}
	c := b.failing(t, "42P01", func(string) bool { return true }, func() bool { return true })
	c.log, c.putOffLines = slog.New(heard), rate.NewLimiter(0, 3)
	ctx, stop := context.WithCancel(t.Context())
	for i := range 5 {
		c.process(ctx, []*delivery{delivered(event(fmt.Sprint(i), 1))})
	}
	stop()
	c.blocked.running.Wait()
	if n := heard.n.Load(); n != 3 {
		t.Errorf("%d warnings, want 3", n)
	}
}
