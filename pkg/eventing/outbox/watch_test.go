package outbox

import (
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// The age of the oldest event does not count the events of a held tenant, however many there are. A
// tenant counts until it is held, and the event behind its events counts once the relay has found
// it, also after a reading that failed.
func TestTheOldestEventBehindAHeldTenant(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	b, admin := newBenchOn(t, pg), pg.Pool(t, pg.Admin)
	r := b.newRelay(t)
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, tenant_id, occurred_at)
		SELECT gen_random_uuid(), 'video', 'busy-' || v, 'VideoCreated', 1, '', 'busy', now() - interval '1h'
		  FROM generate_series(1, $1::int) v`, 2*queue.CountLimit)
	b.append(t, "b", 1, 1)
	b.exec(t, `UPDATE outbox SET occurred_at = now() - interval '30m' WHERE aggregate_id = 'b'`)
	wanted := func(when string, age time.Duration) {
		t.Helper()
		r.readBacklog(t.Context())
		if reading := r.backlog.Load(); reading.failures > 0 || reading.Oldest < age || reading.Oldest > age+time.Minute {
			t.Errorf("%s the oldest event is %s old (%d failures), want %s", when, reading.Oldest, reading.failures, age)
		}
	}
	wanted("before the hold", time.Hour)
	r.followUps.hold([]string{"busy"})
	wanted("at the hold", 0)
	pgtest.Exec(t, admin, `ALTER TABLE app.outbox RENAME TO elsewhere`)
	r.readBacklog(t.Context())
	if r.backlog.Load().failures != 1 {
		t.Error("a reading without a table has not failed")
	}
	pgtest.Exec(t, admin, `ALTER TABLE app.elsewhere RENAME TO outbox`)
	wanted("in the search", 0)
	wanted("at the end of the search", 30*time.Minute)
	wanted("in the next search", 30*time.Minute)
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE aggregate_id = 'b'`)
	wanted("after the publish", 0)
}

// While the backlog is unknown, the age of an event that waited grows.
func TestAnUnknownBacklogGrows(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		reading backlogReading
		age     time.Duration
		want    time.Duration
	}{
		"known":          {backlogReading{at: now}, time.Minute, time.Minute},
		"failed":         {backlogReading{at: now.Add(-time.Hour), failures: 1}, time.Minute, time.Hour + time.Minute},
		"old":            {backlogReading{at: now.Add(-time.Hour)}, time.Minute, time.Hour + time.Minute},
		"nothing waited": {backlogReading{at: now.Add(-time.Hour), failures: 1}, 0, 0},
	} {
		if got := c.reading.grown(c.age).Truncate(time.Minute); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
