package backlog

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
)

// Another session holds rows of the first and of the last page. The other events leave, in any page, and the
// command does not wait for the rows. With the end of that session they are free to be retried.
func TestRetryAllGoesOnBehindLockedRows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const events, parked = 1200, `SELECT count(*) FROM outbox WHERE parked_at IS NOT NULL`
	// The events of a page have the same time, so only the id tells them apart.
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, parked_at, publish_attempts, last_error)
		SELECT gen_random_uuid(), 'video', n, 'VideoCreated', 1, '', now() - make_interval(days => 1 - n / 700), 5, 'no field 7'
		  FROM generate_series(1, $1) n`, events)
	other := pgtest.Begin(t, b.db)
	defer func() { _ = other.Rollback(context.WithoutCancel(t.Context())) }()
	rows, _ := other.Query(t.Context(), `SELECT id FROM outbox WHERE aggregate_id IN ('1', '2', '1200') FOR UPDATE`)
	held, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil || len(held) != 3 {
		t.Fatal(held, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second) // less than the lock_timeout of the role
	defer cancel()
	got, err := b.backlog.Retry(ctx, order, Filter{})
	if err != nil || got != (Retried{Freed: events - 3, Locked: 3}) {
		t.Errorf("%+v, %v", got, err)
	}
	if n := b.count(t, parked+` AND id = ANY ($1)`, held); n != 3 || b.count(t, parked) != 3 {
		t.Errorf("%d events are parked, want the three with locked rows", b.count(t, parked))
	}
	if n := b.count(t, `SELECT count(*) FROM operator_actions WHERE action = 'retry'`); n != events-3 {
		t.Errorf("%d audit entries, want %d", n, events-3)
	}
	pgtest.End(t, other.Rollback)
	if got, err = b.backlog.Retry(t.Context(), order, Filter{}); err != nil || got != (Retried{Freed: 3}) || b.count(t, parked) != 0 {
		t.Errorf("without the locks: %+v, %v", got, err)
	}
}

// The broker refuses each event again, at once. Retry takes each event one time all the same, and ends.
func TestRetryAllTakesEachEventOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const events = retryBatch + 100
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, parked_at, publish_attempts, last_error)
		SELECT gen_random_uuid(), 'video', n, 'VideoCreated', 1, '', now() - interval '1 h', 5, 'no field 7' FROM generate_series(1, $1::int) n`, events)
	admin := b.pg.Pool(t, b.pg.Admin)
	_, err := admin.Exec(t.Context(), `
		CREATE FUNCTION app.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.parked_at = clock_timestamp(); NEW.next_retry_at = NULL; RETURN NEW; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON app.outbox FOR EACH ROW EXECUTE FUNCTION app.refuse()`)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if got, err := b.backlog.Retry(ctx, order, Filter{}); err != nil || got != (Retried{Freed: events}) {
		t.Errorf("%+v, %v, want %d freed", got, err, events)
	}
}

// The connection ends before the command, or at its COMMIT. The event is free afterwards, and the audit table has one entry.
func TestRetryOneOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	for name, loses := range map[string]bool{"before": false, "the answer to COMMIT is lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			id := b.append(t, "a", 1)[0]
			b.park(t, id, "no field 7")
			db, armed := b.pg.PoolLosingCommits(t, b.pg.URL+"&application_name=command", func() {})
			if err := db.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			armed.Store(loses)
			if !loses {
				b.exec(t, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'command' AND datname = current_database()`)
			}
			if err := New(db).RetryOne(t.Context(), order, id); err != nil || armed.Load() {
				t.Errorf("%v", err)
			}
			if n := b.count(t, `SELECT count(*) FROM outbox WHERE id = $1 AND parked_at IS NULL`, id); n != 1 {
				t.Error("the event is parked")
			}
			if n := b.count(t, `SELECT count(*) FROM operator_actions WHERE action = 'retry' AND event_id = $1`, id); n != 1 {
				t.Errorf("%d entries in the audit table", n)
			}
			if err := New(db).RetryOne(t.Context(), order, id); !errors.Is(err, ErrNotParked) {
				t.Errorf("of an event that is free: %v", err)
			}
		})
	}
}

// A person may have parked events with an infinite time. Retry frees them, too.
func TestRetryAllFreesEventsOfInfiniteTimes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, parked_at)
		SELECT gen_random_uuid(), 'video', at, 'VideoCreated', 1, '', at::timestamptz FROM unnest(ARRAY['-infinity', 'now', 'infinity']) AS at`)
	if got, err := b.backlog.Retry(t.Context(), order, Filter{}); err != nil || got != (Retried{Freed: 3}) {
		t.Errorf("%+v, %v, want 3 freed", got, err)
	}
}

// The answer to the COMMIT of the first batch is lost. Each event is freed and has its entry once, and counts.
func TestRetryAllOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const events = 2*retryBatch + 1
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, parked_at, publish_attempts, last_error)
		SELECT gen_random_uuid(), 'video', n, 'VideoCreated', 1, '', now() - interval '1 h', 5, 'no field 7' FROM generate_series(1, $1::int) n`, events)
	db, armed := b.pg.PoolLosingCommits(t, b.pg.URL, func() {})
	armed.Store(true)
	if got, err := New(db).Retry(t.Context(), order, Filter{}); err != nil || got != (Retried{Freed: events}) || armed.Load() {
		t.Errorf("%+v, %v, want %d freed", got, err, events)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE parked_at IS NOT NULL`); n != 0 {
		t.Errorf("%d events are parked", n)
	}
	if n := b.count(t, `SELECT count(DISTINCT event_id) + count(*) FROM operator_actions WHERE action = 'retry'`); n != 2*events {
		t.Errorf("%d entries and events in the audit table, want %d", n, 2*events)
	}
}
