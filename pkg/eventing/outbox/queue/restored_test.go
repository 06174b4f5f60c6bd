package queue_test

import (
	"context"
	"testing"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// A dump was restored into a cluster that will not reach the transactions of its rows for years. Neither the backlog nor
// the view of operators reads the published ones each time. Both have the parked event and the one behind it.
func TestTheBacklogPassesThePublishedRowsOfAnotherCluster(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	db := pg.Pool(t, pg.URL+"&pool_max_conns=1")
	b := box{queue.New(db), db}
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, xact, published_at, parked_at)
		SELECT gen_random_uuid(), 'video', least(v, 19999)::text, 'VideoUpdated', greatest(v - 19998, 1), '', (9000000000000 + v)::text::xid8,
		       CASE WHEN v < 19999 THEN now() END, CASE WHEN v = 19999 THEN now() END
		  FROM generate_series(1, 20000) v`)
	pgtest.Exec(t, pg.Pool(t, pg.Admin), `VACUUM (ANALYZE) app.outbox`)
	for _, low := range []struct {
		snapshot string
		pages    int
	}{
		{`'1:1:'`, 1_000_000}, // the relay has still to read the whole table
		{`pg_current_snapshot()`, 100},
	} {
		b.exec(t, `UPDATE outbox_relays SET low = `+low.snapshot)
		b.append(t, "pending "+low.snapshot, 1, 1)
		want := b.count(t, `SELECT count(*) FROM outbox WHERE published_at IS NULL`)
		if low.pages == 100 { // the event before is older than the low, as one that is published
			want--
		}
		start := b.read(t)
		got, _, err := b.Backlog(t.Context(), queue.OldestSearch{})
		if err != nil || got.Pending != int64(want) || got.Parked != 1 {
			t.Errorf("low %s: %d events are pending, want %d, and %d parked: %v", low.snapshot, got.Pending, want, got.Parked, err)
		}
		if n := b.count(t, `SELECT count(*) FROM outbox_pending`); n != want {
			t.Errorf("low %s: %d events in the view, want %d", low.snapshot, n, want)
		}
		if n := b.read(t) - start; n > low.pages {
			t.Errorf("low %s: the backlog and the view were read in %d pages", low.snapshot, n)
		}
	}
}

// The dump has brought the lows of the relays, too. They hold for the restored events until a relay of this cluster begins.
func TestTheViewHasRestoredEventsBeforeARelayBegins(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, xact, published_at)
		SELECT gen_random_uuid(), 'video', v::text, 'VideoUpdated', 1, '', (9000000000000 + v)::text::xid8, CASE WHEN v <= 100 THEN now() END
		  FROM generate_series(1, 103) v`)
	b.exec(t, `UPDATE outbox_relays SET low = '9000000000101:9000000000101:'`)
	if n := b.count(t, `SELECT count(*) FROM outbox_pending`); n != 3 {
		t.Errorf("%d events in the view, want the 3 that are not published", n)
	}
}

func TestTheViewHasTheEventsOfItsOwnTransaction(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.exec(t, `UPDATE outbox_relays SET low = pg_current_snapshot()`)
	tx := pgtest.Begin(t, b.db)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	var n int
	const insert = `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES (gen_random_uuid(), 'video', 'a', 'VideoUpdated', 1, '')`
	pgtest.Exec(t, tx, insert)
	if err := tx.QueryRow(t.Context(), `SELECT count(*) FROM outbox_pending`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d events in the view, want 1: %v", n, err)
	}
}
