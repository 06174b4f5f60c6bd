package queue

import (
	"context"
	"time"
)

const (
	// HeartbeatEvery is how often a relay writes its low: the place from which another
	// relay must scan if this one dies.
	HeartbeatEvery = 5 * time.Second
	// deadAfter is the age of the last heartbeat at which others take a relay for dead: two
	// heartbeats are missing. A mistake costs a scan and nothing else.
	deadAfter = 3 * HeartbeatEvery
)

// HeartbeatResult is the answer to a relay that has written its row.
type HeartbeatResult struct {
	// Low is a snapshot that saw none of the events that may be unfinished: those of the
	// relay, those of dead relays that it has taken over, and those of no relay.
	Low TxSnapshot
	// Alive are the other relays, and Tenants the last ones that they met.
	Alive, Tenants []string
	// Seen is the snapshot of the heartbeat. Server tells one run of the database's server
	// from another.
	Seen   TxSnapshot
	Server time.Time
}

// heartbeat writes a relay's row, and deletes those of dead relays for it: see "Where to
// look" in the package doc. A relay scans from the least of all rows if it has no row,
// because it is new or was taken for dead, or if it meets another server than before. If
// there is no row, or a row comes from another cluster, it scans from the beginning.
const heartbeat = `
WITH present AS MATERIALIZED (
	SELECT pg_current_snapshot() AS seen, pg_postmaster_start_time() AS server
), others AS MATERIALIZED (
	SELECT token, low, tenants, seen_at >= now() - $3::interval AND seen_at <= now() + interval '1 second' AS alive
	  FROM outbox_relays
	 WHERE token <> $1
), dead AS (
	DELETE FROM outbox_relays
	 WHERE token IN (SELECT r.token FROM outbox_relays r WHERE r.token IN (SELECT token FROM others WHERE NOT alive) FOR UPDATE SKIP LOCKED)
	RETURNING low
), own AS MATERIALIZED (
	SELECT low FROM outbox_relays WHERE token = $1
), inherited AS MATERIALIZED (
	SELECT low FROM dead
	UNION ALL
	SELECT low FROM others, present
	 WHERE NOT EXISTS (SELECT FROM own) OR $4::timestamptz IS NOT NULL AND present.server IS DISTINCT FROM $4::timestamptz
	UNION ALL
	SELECT low FROM own, present WHERE present.server IS DISTINCT FROM $4::timestamptz
	UNION ALL
	SELECT '1:1:'::pg_snapshot WHERE NOT EXISTS (SELECT FROM others) AND NOT EXISTS (SELECT FROM own)
), least AS MATERIALIZED (
	SELECT CASE WHEN EXISTS (SELECT FROM inherited, present WHERE pg_snapshot_xmax(inherited.low) > pg_snapshot_xmax(present.seen))
	            THEN '1:1:'::pg_snapshot
	            ELSE (SELECT l.low
	                    FROM (SELECT low FROM inherited
	                          UNION ALL
	                          SELECT coalesce($2::text::pg_snapshot, seen) FROM present
	                           WHERE coalesce(pg_snapshot_xmax($2::text::pg_snapshot) <= pg_snapshot_xmax(seen), true)) l
	                   ORDER BY pg_snapshot_xmax(l.low), pg_snapshot_xmin(l.low), length(l.low::text) DESC
	                   LIMIT 1)
	       END AS low
)
INSERT INTO outbox_relays (token, low, seen_at, tenants)
SELECT $1, coalesce(least.low, present.seen), CASE WHEN $5 THEN '-infinity' ELSE now() END, $6::text[] FROM least, present
    ON CONFLICT (token) DO UPDATE SET low = excluded.low, seen_at = excluded.seen_at, tenants = excluded.tenants
RETURNING low::text, (SELECT seen::text FROM present), (SELECT server FROM present),
          coalesce((SELECT array_agg(token) FROM others WHERE alive), '{}'),
          ARRAY(SELECT DISTINCT unnest(tenants) FROM others WHERE alive)`

// Heartbeat writes the row of a relay. ended reports that the relay has ended; otherwise it
// is alive. low is its low watermark, a snapshot from before all events that may be
// unfinished in the relay; empty means that there are none. tenants are those that
// it met last. server is the Server of the last answered heartbeat, or zero.
func (q Queue) Heartbeat(
	ctx context.Context, token string, low TxSnapshot, tenants []string, server time.Time, ended bool,
) (b HeartbeatResult, err error) {
	var met *time.Time
	if !server.IsZero() {
		met = &server
	}
	err = q.quick("write that the relay is alive", heartbeat, token, low.orNull(), deadAfter, met, ended, tenants).
		Scan(ctx, &b.Low, &b.Seen, &b.Server, &b.Alive, &b.Tenants)
	return b, err
}
