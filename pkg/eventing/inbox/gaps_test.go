package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/time/rate"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
)

// Thousands of gaps may be open while the owner is away, and each is tried again and again. They leave the connections to
// the events of other aggregates, and the log readable.
func TestManyGapsWithoutTheirOwner(t *testing.T) {
	t.Parallel()
	b, heard := newBench(t), &complaints{}
	c := b.consumer(t)
	c.options.RepairBackoff = backoff.Policy{Base: time.Millisecond, Cap: time.Millisecond}
	c.log, c.gapLines = slog.New(heard), rate.NewLimiter(0, 3)
	var calls atomic.Int64
	var changing atomic.Bool
	c.functions().repair = func(context.Context, eventing.Event) error {
		if n := calls.Add(1); changing.Load() {
			return fmt.Errorf("owner is away, for the %dth time", n)
		}
		return errors.New("owner is away")
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	const gaps = 5
	for i := range gaps {
		c.process(ctx, []*delivery{delivered(event(fmt.Sprint(i), 2))})
	}
	b.eventually(t, gaps, `SELECT count(*) FROM inbox WHERE last_error = 'gap: owner is away'`)
	const versions = `SELECT sum(xmin::text::bigint) FROM inbox`
	written, tick := b.count(t, versions), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for seen := calls.Load(); calls.Load() < seen+20*gaps; {
		<-tick.C
	}
	if b.count(t, versions) != written {
		t.Error("the same error is written again")
	}
	if n := heard.n.Load(); n != 3 {
		t.Errorf("%d lines at WARN and ERROR, want 3", n)
	}
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT FROM inbox FOR UPDATE`); err != nil {
			return err
		}
		changing.Store(true)
		for polls := 0; polls < 50; <-tick.C {
			n := b.count(t, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`)
			if n > 1 {
				return fmt.Errorf("%d gaps have a connection", n)
			}
			polls += n
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	stop()
	c.blocked.running.Wait()
}
