package queue_test

import (
	"fmt"
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

func TestBacklog(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	if got, _, err := b.Backlog(t.Context(), queue.Cursor{}); err != nil || got != (queue.Backlog{}) {
		t.Errorf("empty: %+v, %v", got, err)
	}
	b.append(t, "parked", 1, 2)
	b.append(t, "waits", 1, 1)
	b.append(t, "done", 1, 1)
	b.exec(t, `UPDATE outbox SET parked_at = now(), occurred_at = now() - interval '9h' WHERE aggregate_id = 'parked' AND version = 1`)
	b.exec(t, `UPDATE outbox SET occurred_at = now() - interval '2h' WHERE aggregate_id = 'waits'`)
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE aggregate_id = 'done'`)
	got, _, err := b.Backlog(t.Context(), queue.Cursor{})
	if err != nil || got.Pending != 3 || got.Parked != 1 || got.Oldest < 2*time.Hour || got.Oldest > 3*time.Hour {
		t.Errorf("%+v, %v; want 3 pending, 1 parked, the oldest 2h old", got, err)
	}
}

// The oldest event that could leave is found behind any number of parked aggregates.
func TestBacklogBehindParkedAggregates(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, parked_at)
		SELECT gen_random_uuid(), 'video', 'parked-' || lpad(a::text, 5, '0'), 'VideoUpdated', v, '', CASE v WHEN 1 THEN now() END
		  FROM generate_series(1, 1500) a, generate_series(1, 2) v`)
	for i := range 50 {
		b.append(t, fmt.Sprint("waits-", i), 1, 1)
	}
	b.exec(t, `UPDATE outbox SET occurred_at = now() - interval '3h' WHERE aggregate_id LIKE 'waits-%'`)
	for _, low := range []queue.TxSnapshot{queue.Beginning, b.snapshot(t)} {
		b.exec(t, `DELETE FROM outbox_relays`)
		b.exec(t, `INSERT INTO outbox_relays (token, low) VALUES ('t', $1::text::pg_snapshot)`, string(low))
		got, _, err := b.Backlog(t.Context(), queue.Cursor{})
		want := queue.Backlog{Pending: 3050, Parked: 1500, Oldest: got.Oldest}
		if low != queue.Beginning {
			// Some rows that no relay has to look for any more may be counted: a low
			// counts from the oldest transaction that was open anywhere on the server.
			want.Pending = min(max(got.Pending, 3000), 3050)
		} else if got.Oldest < 3*time.Hour {
			t.Errorf("the oldest is %s old, want 3h", got.Oldest)
		}
		if err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
}

// Each tenant's part of the backlog, those with most events first; an empty name is the
// default tenant's.
func TestBacklogByTenant(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "mine", 1, 3)
	b.append(t, "old", 1, 2)
	b.append(t, "theirs", 1, 1)
	b.exec(t, `UPDATE outbox SET tenant_id = 'default' WHERE aggregate_id = 'old'`)
	b.exec(t, `UPDATE outbox SET tenant_id = 'a', parked_at = now() WHERE aggregate_id = 'theirs'`)
	b.exec(t, `UPDATE outbox SET occurred_at = now() - interval '2h' WHERE aggregate_id = 'old' AND version = 1`)
	_, got, err := b.Backlog(t.Context(), queue.Cursor{})
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if got[0].Oldest < 2*time.Hour || got[0].Oldest > 3*time.Hour {
		t.Errorf("the oldest is %s old, want 2h", got[0].Oldest)
	}
	got[0].Oldest = 0
	if want := (queue.TenantBacklog{Tenant: eventing.DefaultTenant, Pending: 5}); got[0] != want {
		t.Errorf("%+v, want %+v", got[0], want)
	}
	if want := (queue.TenantBacklog{Tenant: "a", Pending: 1, Parked: 1}); got[1] != want {
		t.Errorf("%+v, want %+v", got[1], want)
	}
}

// The oldest event behind many events of a tenant that does not count is found by several calls,
// and no call reads all rows.
func TestOldestBehindTheEventsOfAnotherTenant(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	const rows = 2*queue.CountLimit + 100
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, tenant_id)
		SELECT gen_random_uuid(), 'video', v::text, 'VideoCreated', 1, '', 'busy' FROM generate_series(1, $1) v`, rows)
	search := func() (calls int, oldest time.Duration) {
		var from queue.Cursor
		for {
			start := b.read(t)
			got, _, err := b.Backlog(t.Context(), from, "busy")
			if err != nil || got.Pending != queue.CountLimit {
				t.Fatalf("%+v, %v", got, err)
			}
			if n := b.read(t) - start; n > 2*queue.CountLimit+queue.CountLimit/2 {
				t.Errorf("a call has read %d pages", n)
			}
			calls++
			if got.Next == (queue.Cursor{}) {
				return calls, got.Oldest
			}
			if got.Oldest != 0 || calls > 10 {
				t.Fatalf("call %d: %+v", calls, got)
			}
			from = got.Next
		}
	}
	if calls, oldest := search(); oldest != 0 || calls != 4 {
		t.Errorf("%d calls, the oldest is %s old; want 4 calls and no event", calls, oldest)
	}
	b.append(t, "waits", 1, 1)
	b.exec(t, `UPDATE outbox SET occurred_at = now() - interval '3h' WHERE aggregate_id = 'waits'`)
	if calls, oldest := search(); oldest < 3*time.Hour || calls != 4 {
		t.Errorf("%d calls, the oldest is %s old; want 4 calls and 3h", calls, oldest)
	}
	// Relays that have seen the event forget it until its retry is due.
	b.exec(t, `UPDATE outbox SET next_retry_at = now() + interval '1m', occurred_at = now() - interval '4h' WHERE aggregate_id = 'waits'`)
	b.exec(t, `DELETE FROM outbox_relays`)
	b.exec(t, `INSERT INTO outbox_relays (token, low) VALUES ('t', pg_current_snapshot())`)
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, tenant_id)
		SELECT gen_random_uuid(), 'video', 'new' || v, 'VideoCreated', 1, '', 'busy' FROM generate_series(1, $1) v`, rows)
	if calls, oldest := search(); oldest < 4*time.Hour || calls != 1 {
		t.Errorf("%d calls, the oldest is %s old; want 1 call and 4h", calls, oldest)
	}
}
