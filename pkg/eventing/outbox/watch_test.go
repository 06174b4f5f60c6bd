package outbox

import (
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// The age of the oldest event does not count the events of a held tenant, however many there are.
// While the relay looks for an event behind them, the gauge keeps its value.
func TestTheOldestEventBehindAHeldTenant(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.newRelay(t)
	b.append(t, "a", 1, 1)
	b.exec(t, `UPDATE outbox SET occurred_at = now() - interval '1h'`)
	oldest := func(readings int) time.Duration {
		for range readings {
			r.readBacklog(t.Context())
		}
		if reading := r.backlog.Load(); reading.failed || reading.tenants == nil {
			t.Fatalf("%+v", reading)
		}
		return r.backlog.Load().Oldest.Truncate(time.Hour)
	}
	if age := oldest(1); age != time.Hour {
		t.Errorf("the oldest event is %s old, want 1h", age)
	}
	b.exec(t, `UPDATE outbox SET published_at = now()`)
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, tenant_id)
		SELECT gen_random_uuid(), 'video', 'busy-' || v, 'VideoCreated', 1, '', 'busy' FROM generate_series(1, $1) v`, 2*queue.CountLimit)
	r.followUps.hold([]string{"busy"})
	b.append(t, "b", 1, 1)
	b.exec(t, `UPDATE outbox SET occurred_at = now() - interval '2h' WHERE aggregate_id = 'b'`)
	if age := oldest(1); age != time.Hour {
		t.Errorf("the oldest event is %s old during the search, want 1h as before", age)
	}
	if age := oldest(3); age != 2*time.Hour {
		t.Errorf("the oldest event is %s old after the search, want 2h", age)
	}
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE aggregate_id = 'b'`)
	if age := oldest(4); age != 0 {
		t.Errorf("the oldest event is %s old, want none", age)
	}
}
