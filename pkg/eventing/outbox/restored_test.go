package outbox

import (
	"context"
	"testing"

	"example.com/lockstep/internal/pgtest"
)

// The table outbox was restored alone, from another cluster, while relays run. Their lows do not cover its events, because the ids of
// the transactions are above all of this cluster, or long past. With the statement of the runbook, operators see the events at once,
// and a relay publishes them after its next heartbeat. Without it the sweep finds them, 1,000 rows at a time.
func TestATableThatWasRestoredAlone(t *testing.T) {
	t.Parallel()
	const rows, afterRestore = 20_000, `INSERT INTO outbox_relays (token, low, seen_at) VALUES ('restored events', '1:1:', '-infinity')`
	b := newBench(t)
	b.append(t, "own", 1, 1)
	b.relay(t, 1)
	b.eventually(t, 0, unpublished)
	b.eventually(t, 1, `SELECT count(*) FROM outbox_relays WHERE pg_snapshot_xmax(low) > (SELECT xact FROM outbox)`)
	tx := pgtest.Begin(t, b.db)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, tx, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, xact, published_at)
		SELECT gen_random_uuid(), 'video', 'restored ' || v, 'VideoUpdated', 1, '1', CASE v WHEN 1 THEN 5 ELSE 9000000000000 + v END::text::xid8,
		       CASE WHEN v BETWEEN 2 AND $1 - 2 THEN now() END
		  FROM generate_series(1, $1::int) v`, rows)
	pgtest.Exec(t, tx, afterRestore)
	var seen int
	if err := tx.QueryRow(t.Context(), `SELECT count(*) FROM outbox_pending`).Scan(&seen); err != nil || seen != 3 {
		t.Errorf("%d events in the view, want the 3 that are not published: %v", seen, err)
	}
	pgtest.End(t, tx.Commit)
	b.eventually(t, 0, unpublished)
	b.eventually(t, 0, `SELECT count(*) FROM outbox_relays WHERE token = 'restored events'`)
}
