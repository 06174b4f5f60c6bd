package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

func TestBacklog(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	got, _, err := b.Backlog(t.Context(), queue.OldestSearch{})
	if err != nil || got.Pending != 0 || got.Parked != 0 || got.Oldest != 0 {
		t.Errorf("empty: %+v, %v", got, err)
	}
	b.append(t, "parked", 1, 2)
	b.append(t, "waits", 1, 1)
	b.append(t, "done", 1, 1)
	b.exec(t, `UPDATE outbox SET parked_at = now(), occurred_at = now() - interval '9h' WHERE aggregate_id = 'parked' AND version = 1`)
	b.exec(t, `UPDATE outbox SET occurred_at = now() - interval '2h' WHERE aggregate_id = 'waits'`)
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE aggregate_id = 'done'`)
	got, _, err = b.Backlog(t.Context(), queue.OldestSearch{})
	if err != nil || got.Pending != 3 || got.Parked != 1 || got.Oldest < 2*time.Hour || got.Oldest > 3*time.Hour {
		t.Errorf("%+v, %v; want 3 pending, 1 parked, the oldest 2h old", got, err)
	}
	b.exec(t, `UPDATE outbox SET occurred_at = now() + interval '2h'`)
	got, tenants, err := b.Backlog(t.Context(), queue.OldestSearch{})
	if err != nil || got.Oldest != 0 || len(tenants) != 1 || tenants[0].Oldest != 0 {
		t.Errorf("%+v, %+v, %v; want an age of 0 for events from a clock that is ahead", got, tenants, err)
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
		got, _, err := b.Backlog(t.Context(), queue.OldestSearch{})
		pending := int64(3050)
		if low != queue.Beginning {
			// Some rows that no relay has to look for any more may be counted: a low
			// counts from the oldest transaction that was open anywhere on the server.
			pending = min(max(got.Pending, 3000), 3050)
		} else if got.Oldest < 3*time.Hour {
			t.Errorf("the oldest is %s old, want 3h", got.Oldest)
		}
		if err != nil || got.Pending != pending || got.Parked != 1500 {
			t.Errorf("%+v, %v; want %d pending, 1500 parked", got, err, pending)
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
	_, got, err := b.Backlog(t.Context(), queue.OldestSearch{})
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

// busyRows writes pending events of the tenant busy.
func (b box) busyRows(t *testing.T, prefix string, rows int) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		// The service's own statements end after 15 s, and a busy machine takes longer for so many.
		if _, err := tx.Exec(t.Context(), `SET LOCAL statement_timeout = '1min'`); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), fmt.Sprintf(insertBusy, prefix), rows)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

const insertBusy = `
	INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, tenant_id)
	SELECT gen_random_uuid(), 'video', '%s-' || v::text, 'VideoCreated', 1, '', 'busy' FROM generate_series(1, $1::int) v`

// searching reads the backlog without the tenant busy until the oldest event is at least as old as
// wanted, and returns how many calls that took. It gives up after ten calls.
func (b box) searching(t *testing.T, s *queue.OldestSearch, wanted time.Duration) (calls int) {
	t.Helper()
	for calls = 1; calls <= 10; calls++ {
		got, _, err := b.Backlog(t.Context(), *s, "busy")
		if err != nil {
			t.Fatal(err)
		}
		if *s = got.Search; got.Oldest >= wanted {
			break
		}
	}
	return calls
}

// scanned returns how many times this session has read the whole outbox, and how many entries of its
// indexes it has read.
func (b box) scanned(t *testing.T) (tables, entries int) {
	t.Helper()
	b.exec(t, `SELECT pg_stat_force_next_flush()`)
	return b.count(t, `SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'outbox'`),
		b.count(t, `SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname = 'outbox'`)
}

// The oldest event behind many events of a tenant that does not count is found by several calls,
// none of which reads all rows. It counts until it is published.
func TestOldestBehindTheEventsOfAnotherTenant(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	var s queue.OldestSearch
	for range 8 { // the session has had the chance to keep a plan for an empty table
		if _, _, err := b.Backlog(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	b.busyRows(t, "a", 2*queue.CountLimit)
	b.append(t, "waits", 1, 1)
	b.busyRows(t, "b", 2*queue.CountLimit)
	// The table has no statistics, as after an import.
	for call := range 6 {
		scans, entries := b.scanned(t)
		got, _, err := b.Backlog(t.Context(), s, "busy", eventing.DefaultTenant)
		if err != nil || got.Pending != queue.CountLimit || got.Oldest != 0 {
			t.Fatalf("%+v, %v", got, err)
		}
		if tables, read := b.scanned(t); tables != scans || read-entries > 5*queue.CountLimit/2 {
			t.Errorf("call %d has read the whole table %d times, and %d entries of indexes", call, tables-scans, read-entries)
		}
		s = got.Search
	}
	b.exec(t, `UPDATE outbox SET occurred_at = now() - interval '3h' WHERE aggregate_id = 'waits'`)
	b.append(t, "retried", 1, 1) // it is found by each call, and hides no older one
	b.exec(t, `UPDATE outbox SET next_retry_at = now() + interval '1m', occurred_at = now() - interval '1h' WHERE aggregate_id = 'retried'`)
	s = queue.OldestSearch{}
	if calls := b.searching(t, &s, time.Hour); calls != 1 {
		t.Errorf("the event with a retry was found by call %d", calls)
	}
	if calls := b.searching(t, &s, 3*time.Hour); calls != 3 {
		t.Errorf("the oldest event was found by call %d, want 3", calls)
	}
	for range 7 { // the next search has not reached it yet, and has begun again
		if calls := b.searching(t, &s, 3*time.Hour); calls != 1 {
			t.Error("the oldest event was forgotten")
		}
	}
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE aggregate_id = 'waits'`)
	got, _, err := b.Backlog(t.Context(), s, "busy")
	if err != nil || got.Oldest.Truncate(time.Hour) != time.Hour {
		t.Errorf("the oldest event is %s old after a publish, want 1h: %v", got.Oldest, err)
	}
	if got, _, err = b.Backlog(t.Context(), got.Search, "busy", eventing.DefaultTenant); err != nil || got.Oldest != 0 {
		t.Errorf("the oldest event is %s old without the default tenant: %v", got.Oldest, err)
	}
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE tenant_id = 'busy'`)
	if got, _, err = b.Backlog(t.Context(), got.Search, "busy"); err != nil || got.Pending != 1 || got.Oldest < time.Hour {
		t.Errorf("%+v, %v", got, err)
	}
}

// Relays may have seen all rows but those of a transaction that was open, and those of retries.
func TestOldestBeforeTheLowOfTheRelays(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.busyRows(t, "old", 2*queue.CountLimit)
	b.exec(t, `UPDATE outbox SET published_at = now()`)
	open := pgtest.Begin(t, b.db)
	pgtest.Exec(t, open, fmt.Sprintf(insertBusy, "opened"), 200)
	if err := outbox.Append(t.Context(), open, nil, event("late", 1)); err != nil {
		t.Fatal(err)
	}
	b.append(t, "retried", 1, 1)
	b.exec(t, `UPDATE outbox SET next_retry_at = now() + interval '1m', occurred_at = now() - interval '1h' WHERE aggregate_id = 'retried'`)
	b.exec(t, `DELETE FROM outbox_relays`)
	b.exec(t, `INSERT INTO outbox_relays (token, low) VALUES ('t', pg_current_snapshot())`)
	b.busyRows(t, "a", queue.CountLimit)
	pgtest.End(t, open.Commit)
	if calls := b.searching(t, new(queue.OldestSearch), time.Hour); calls != 1 {
		t.Errorf("the retry was found by call %d", calls)
	}
	b.exec(t, `UPDATE outbox SET occurred_at = now() - interval '2h' WHERE aggregate_id = 'late'`)
	// The low of a relay that has seen more does not count.
	b.exec(t, `INSERT INTO outbox_relays (token, low) VALUES ('later', pg_current_snapshot())`)
	if calls := b.searching(t, new(queue.OldestSearch), 2*time.Hour); calls != 2 {
		t.Errorf("the event of the open transaction was found by call %d, want 2", calls)
	}
	b.append(t, "waits", 1, 1)
	b.exec(t, `UPDATE outbox SET occurred_at = now() - interval '3h' WHERE aggregate_id = 'waits'`)
	if calls := b.searching(t, new(queue.OldestSearch), 3*time.Hour); calls != 3 {
		t.Errorf("the event behind those of the other tenant was found by call %d, want 3", calls)
	}
}

// A search ends, however fast rows are written. So it finds an event that was committed behind it.
func TestOldestBehindTheSearch(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.exec(t, `INSERT INTO outbox_relays (token, low) VALUES ('t', pg_current_snapshot())`)
	b.busyRows(t, "a", queue.CountLimit)
	open := pgtest.Begin(t, b.db)
	if err := outbox.Append(t.Context(), open, nil, event("late", 1)); err != nil {
		t.Fatal(err)
	}
	b.busyRows(t, "b", 2*queue.CountLimit)
	var s queue.OldestSearch
	for range 3 { // the third call reads rows behind those of the open transaction
		b.searching(t, &s, 0)
	}
	pgtest.Exec(t, open, `UPDATE outbox SET occurred_at = now() - interval '3h' WHERE aggregate_id = 'late'`)
	pgtest.End(t, open.Commit)
	for call := range 12 {
		b.busyRows(t, fmt.Sprint("c", call), queue.CountLimit)
		got, _, err := b.Backlog(t.Context(), s, "busy")
		if err != nil {
			t.Fatal(err)
		}
		if s = got.Search; got.Oldest > 0 {
			return
		}
	}
	t.Error("the event was not found by 12 calls, with as many new rows before each as a call reads")
}

// The next oldest event counts as soon as the oldest one is published, although the search has
// passed both.
func TestOldestAfterTheOldest(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.busyRows(t, "a", queue.CountLimit)
	b.append(t, "first", 1, 1)
	b.append(t, "second", 1, 1)
	b.exec(t, `UPDATE outbox SET occurred_at = now() - interval '3h' WHERE aggregate_id = 'first'`)
	b.exec(t, `UPDATE outbox SET occurred_at = now() - interval '2h' WHERE aggregate_id = 'second'`)
	b.busyRows(t, "b", 3*queue.CountLimit)
	var s queue.OldestSearch
	b.searching(t, &s, 3*time.Hour)
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE aggregate_id = 'first'`)
	if calls := b.searching(t, &s, 2*time.Hour); calls != 1 {
		t.Errorf("the second event counts from call %d", calls)
	}
}

// A call counts the published rows that it reads. A search leaves out rows that all relays have
// seen since it began.
func TestTheSearchFollowsTheLow(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.exec(t, `INSERT INTO outbox_relays (token, low) VALUES ('t', pg_current_snapshot())`)
	b.busyRows(t, "a", 5*queue.CountLimit)
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE aggregate_id NOT LIKE '%0'`)
	low := b.snapshot(t)
	b.busyRows(t, "b", queue.CountLimit)
	b.append(t, "waits", 1, 1)
	b.exec(t, `UPDATE outbox SET occurred_at = now() - interval '3h' WHERE aggregate_id = 'waits'`)
	var s queue.OldestSearch
	if calls := b.searching(t, &s, time.Hour); calls != 8 {
		t.Errorf("the event behind 60,000 rows was found by call %d, want 8", calls)
	}
	s = queue.OldestSearch{}
	b.searching(t, &s, 0)
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE aggregate_id LIKE 'a-%'`)
	b.exec(t, `UPDATE outbox_relays SET low = $1::text::pg_snapshot`, string(low))
	if calls := b.searching(t, &s, time.Hour); calls != 3 {
		t.Errorf("the event was found by call %d after the low has moved, want 3", calls)
	}
}
