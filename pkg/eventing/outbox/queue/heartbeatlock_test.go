package queue_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// A heartbeat waits for its relay's row, which an earlier heartbeat without an answer holds.
// Meanwhile a relay that looked dead goes on and writes a newer low. The heartbeat takes nothing of
// that for a row of another cluster.
func TestAHeartbeatJudgesAfterItsWait(t *testing.T) {
	t.Parallel()
	for name, pooled := range map[string]bool{"session": false, "pooler": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, b := newBoxBehind(t, pooled)
			beats := b.registered(t, "stopped", "waiting")
			b.exec(t, `UPDATE outbox_relays SET seen_at = now() - interval '1 minute' WHERE token = 'stopped'`)
			earlier := pgtest.Begin(t, b.db)
			defer func() { _ = earlier.Rollback(context.WithoutCancel(t.Context())) }()
			pgtest.Exec(t, earlier, `UPDATE outbox_relays SET seen_at = now() WHERE token = 'waiting'`)
			got := make(chan queue.HeartbeatResult, 1)
			go func() {
				r, err := b.Heartbeat(t.Context(), "waiting", beats["waiting"].Low, nil, beats["waiting"], false)
				if err != nil {
					t.Error(err)
				}
				got <- r
			}()
			for b.count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0 {
				backoff.Sleep(t.Context(), time.Millisecond, nil)
			}
			b.append(t, "meanwhile", 1, 1)
			b.append(t, "meanwhile", 2, 2)
			b.exec(t, `UPDATE outbox_relays SET seen_at = now(), low = pg_current_snapshot() WHERE token = 'stopped'`)
			pgtest.End(t, earlier.Rollback)
			if r := <-got; r.Low == queue.Beginning {
				t.Error("the relay scans the whole table")
			}
		})
	}
}

// A heartbeat is one round trip, so it holds a connection and the lock of its row no longer than its statement takes.
func TestAHeartbeatIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	cfg := pgtest.Settings(t, pg.URL)
	var seen atomic.Int64
	cfg.ConnConfig.Tracer = &pgtest.Tracer{Before: func(context.Context, *pgx.Conn, pgtest.Trip) { seen.Add(1) }}
	db := pgtest.Open(t, cfg)
	b := box{queue.New(db), db}
	first := b.heartbeatAfter(t, b.Queue, "a", "", queue.HeartbeatResult{})
	seen.Store(0)
	b.heartbeatAfter(t, b.Queue, "a", first.Seen, first)
	if n := seen.Load(); n != 1 {
		t.Errorf("%d round trips", n)
	}
}

// A heartbeat may wait for a connection. The wait is no error of the clock, because a relay hands over no events as long as the error is
// large.
func TestTheWaitForAConnectionIsNoErrorOfTheClock(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	cfg := pgtest.Settings(t, pg.URL+"&pool_max_conns=1")
	waits := &acquisitions{begun: make(chan struct{}, 2)}
	cfg.ConnConfig.Tracer = waits
	db := pgtest.Open(t, cfg)
	busy, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-waits.begun
	got := make(chan queue.HeartbeatResult, 1)
	go func() {
		r, err := queue.New(db).Heartbeat(t.Context(), "a", "", nil, queue.HeartbeatResult{}, false)
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	<-waits.begun
	released := time.Now()
	busy.Release()
	if r := <-got; r.Clock.Asked.Before(released) {
		t.Error("the clock was asked before there was a connection")
	}
}

// acquisitions has a signal for each wait for a connection that begins.
type acquisitions struct {
	pgtest.Tracer

	begun chan struct{}
}

func (a *acquisitions) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	a.begun <- struct{}{}
	return ctx
}
func (*acquisitions) TraceAcquireEnd(context.Context, *pgxpool.Pool, pgxpool.TraceAcquireEndData) {}
