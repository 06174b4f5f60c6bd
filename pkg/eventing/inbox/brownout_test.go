package inbox

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
)

// A database that answers, and takes no writes in time, counts as unavailable: a time limit
// that is reached meanwhile is no event's fault.
func TestOutageOfWritesSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	admin := b.pg.Pool(t, b.pg.Admin)
	exec := func(sql string) {
		t.Helper()
		pgtest.Exec(t, admin, sql)
	}
	exec(`CREATE FUNCTION app.stall() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END'`)
	for _, table := range []string{"model", "inbox_runs"} {
		exec(`CREATE TRIGGER stall BEFORE INSERT OR UPDATE ON app.` + table + ` FOR EACH ROW EXECUTE FUNCTION app.stall()`)
	}
	limited := b.db
	limit := func(set string) {
		t.Helper()
		exec(`DO $$ BEGIN EXECUTE format('ALTER ROLE app_service IN DATABASE %I ` + set + `', current_database()); END $$`)
		limited.Reset()
	}
	limit(`SET statement_timeout = ''100ms''`)
	c := b.consumer(t)
	b.db = b.pg.Pool(t, b.pg.URL+"&statement_timeout=0") // the test itself has no limit
	var tries atomic.Int64
	b.setSpoil(func(eventing.Event) error { tries.Add(1); return nil })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.process(ctx, mergeDuplicates([]*delivery{delivered(event("a", 1)), delivered(event("b", 1)), delivered(event("c", 1))}))
		for ctx.Err() == nil && len(c.blocked.byKey) > 0 {
			select {
			case key := <-c.blocked.released:
				c.process(ctx, mergeDuplicates(c.blocked.unblock(key)))
			case <-ctx.Done():
			}
		}
	}()
	pgtest.Until(t, "ten tries", func() bool { return tries.Load() >= 10 })
	if n := b.count(t, `SELECT coalesce(sum(attempts), 0) FROM inbox`); n != 0 || len(b.deadLettered("")) != 0 {
		t.Errorf("%d attempts and %d dead letters while nothing can be written", n, len(b.deadLettered("")))
	}
	exec(`DROP FUNCTION app.stall CASCADE`)
	limit(`RESET statement_timeout`)
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("not applied afterwards")
	}
	b.eventually(t, 3, withDone)
}

// Where the smallest write passes and every event meets a time limit all the
// same, events of a few aggregates in a row say that it is not theirs.
func TestTimeLimitsOfSeveralAggregatesAreAnOutage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	var slow atomic.Bool
	slow.Store(true)
	c.functions().apply = each(func(ctx context.Context, tx pgx.Tx, change Change) (Outcome, error) {
		if slow.Load() {
			if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = '10ms'; SELECT pg_sleep(10)`); err != nil {
				return 0, err
			}
		}
		return b.apply(ctx, tx, change)
	})
	var batch []*delivery
	for i := range 6 {
		batch = append(batch, delivered(event(fmt.Sprint("a", i), 1)))
	}
	c.process(t.Context(), mergeDuplicates(batch))
	for range 3 * len(batch) {
		select {
		case key := <-c.blocked.released:
			c.process(t.Context(), mergeDuplicates(c.blocked.unblock(key)))
		case <-time.After(patience):
			t.Fatal("not tried again")
		}
	}
	if n := b.count(t, `SELECT coalesce(max(attempts), 0) FROM inbox`); n > 1 || len(b.deadLettered("")) != 0 {
		t.Errorf("up to %d attempts are counted, %d dead letters", n, len(b.deadLettered("")))
	}
	slow.Store(false)
	c.finish(t)
	if n := b.count(t, withDone); n != 6 {
		t.Errorf("%d are done", n)
	}
}

// loseACommit gives b a pool that loses the answer to the first COMMIT after armed is set.
func (b *bench) loseACommit(t *testing.T, lost func()) (armed *atomic.Bool) {
	t.Helper()
	b.db, armed = b.pg.PoolLosingCommits(t, b.pg.URL, lost)
	return armed
}

// After a COMMIT with an unknown result, the second try finds everything done. Readers that
// wait for the effect are notified all the same.
func TestAnUnknownCommitIsNotified(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	armed := b.loseACommit(t, func() {})
	c := b.consumer(t)
	var notified []string
	c.functions().committed = func(keys ...string) { notified = append(notified, keys...) }
	armed.Store(true)
	c.finish(t, delivered(event("a", 1)), delivered(event("b", 1)))
	slices.Sort(notified)
	if !slices.Equal(notified, []string{"video/a", "video/b"}) || armed.Load() {
		t.Errorf("notified %v, want both; the commit was lost: %v", notified, !armed.Load())
	}
	if n := b.count(t, `SELECT coalesce(sum(effects), 0) FROM model`); n != 2 {
		t.Errorf("%d effects", n)
	}
}

// The same where the second try fails, too, and is halved: here because another transaction
// has locked a row.
func TestAnUnknownCommitIsNotifiedByTheHalves(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var unlock func()
	a := delivered(event("a", 1))
	armed := b.loseACommit(t, func() {
		unlock = b.lockOne(t, `SELECT FROM app.inbox WHERE event_id = $1 FOR UPDATE`, a.id())
	})
	c := b.consumer(t)
	var notified []string
	c.functions().committed = func(keys ...string) { notified = append(notified, keys...) }
	armed.Store(true)
	c.process(t.Context(), mergeDuplicates([]*delivery{a, delivered(event("b", 1))}))
	if !slices.Equal(notified, []string{"video/b"}) || a.putOffs != 1 {
		t.Errorf("notified %v, want what is not locked; the locked one was put off %d times", notified, a.putOffs)
	}
	unlock()
	c.finish(t)
	if !slices.Equal(notified, []string{"video/b", "video/a"}) || b.count(t, withDone) != 2 {
		t.Errorf("notified %v, want both", notified)
	}
}
