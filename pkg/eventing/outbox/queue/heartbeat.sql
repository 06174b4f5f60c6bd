WITH present AS MATERIALIZED (
	SELECT pg_current_snapshot() AS seen, (SELECT to_timestamp(extract(epoch FROM pg_postmaster_start_time()) + extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()))) AS server
), own AS MATERIALIZED (
	SELECT low, xmin::text AS written, seen_at FROM outbox_relays WHERE token = $1
), others AS MATERIALIZED (
	SELECT token, low, tenants, seen_at, dead, lost, gone, NOT dead AND NOT gone AS alive
	  FROM (SELECT r.token, r.low, r.tenants, r.seen_at, r.lost,
	               NOT (r.seen_at >= now() - $3::interval AND r.seen_at <= clock_timestamp() + interval '1 second') AS dead,
	               r.seen_at = '-infinity' OR r.lost AND r.seen_at < now() - $8::interval AND r.seen_at >= now() - $11::interval AS gone
	          FROM (SELECT r.token, r.low, r.tenants, r.seen_at,
	                       $9 AND coalesce((SELECT seen_at >= clock_timestamp() - $10::interval FROM own), true)
	                       AND coalesce(r.server = present.server, false) AND NOT EXISTS (SELECT FROM pg_stat_get_activity(r.session)) AS lost
	                  FROM outbox_relays r, present
	                 WHERE r.token <> $1) r) r
), ended AS (
	DELETE FROM outbox_relays
	 WHERE token IN (SELECT r.token FROM outbox_relays r JOIN others o ON o.token = r.token AND o.seen_at = r.seen_at
	                  WHERE o.dead
	                    FOR UPDATE OF r SKIP LOCKED)
	RETURNING low
), inherited AS MATERIALIZED (
	SELECT low FROM ended
	UNION ALL
	SELECT low FROM others, present
	 WHERE NOT EXISTS (SELECT FROM own) OR $4::timestamptz IS NOT NULL AND present.server IS DISTINCT FROM $4::timestamptz
	UNION ALL
	SELECT low FROM own, present WHERE present.server IS DISTINCT FROM $4::timestamptz OR own.written <> $7::text
	UNION ALL
	SELECT '1:1:'::pg_snapshot WHERE NOT EXISTS (SELECT FROM others) AND NOT EXISTS (SELECT FROM own)
), inherited_low AS MATERIALIZED (
	SELECT CASE WHEN EXISTS (SELECT FROM inherited, present WHERE pg_snapshot_xmax(inherited.low) > pg_snapshot_xmax(present.seen))
	            THEN '1:1:'::pg_snapshot
	            ELSE (SELECT low FROM inherited ORDER BY pg_snapshot_xmax(low), pg_snapshot_xmin(low), length(low::text) DESC LIMIT 1)
	       END AS low
), least AS MATERIALIZED (
	SELECT (SELECT l.low
	          FROM (SELECT low FROM inherited_low WHERE low IS NOT NULL
	                UNION ALL
	                SELECT coalesce($2::text::pg_snapshot, seen) FROM present
	                 WHERE $2::text IS NULL OR server IS NOT DISTINCT FROM $4::timestamptz AND pg_snapshot_xmax($2::text::pg_snapshot) <= pg_snapshot_xmax(seen)) l
	         ORDER BY pg_snapshot_xmax(l.low), pg_snapshot_xmin(l.low), length(l.low::text) DESC
	         LIMIT 1) AS low
)
INSERT INTO outbox_relays (token, low, seen_at, tenants, session, server)
SELECT $1, coalesce(least.low, present.seen), CASE WHEN $5 OR EXISTS (SELECT FROM own WHERE seen_at = '-infinity') THEN '-infinity' ELSE now() END, $6::text[],
       pg_backend_pid(), present.server
  FROM least, present
    ON CONFLICT (token) DO UPDATE SET low = excluded.low, seen_at = excluded.seen_at, tenants = excluded.tenants,
       session = excluded.session, server = excluded.server
RETURNING low::text, (SELECT coalesce(low::text, '') FROM inherited_low), pg_current_xact_id()::xid::text, (SELECT seen::text FROM present), (SELECT server FROM present),
          coalesce((SELECT array_agg(token) FROM others WHERE alive), '{}'),
          coalesce((SELECT array_agg(token) FROM others WHERE gone), '{}'),
          coalesce((SELECT low::text FROM others WHERE gone AND NOT dead ORDER BY pg_snapshot_xmax(low), pg_snapshot_xmin(low), length(low::text) DESC LIMIT 1), ''),
          coalesce((SELECT extract(epoch FROM min(seen_at) + $8::interval - now())::float8 FROM others WHERE lost AND alive), 0),
          ARRAY(SELECT DISTINCT unnest(tenants) FROM others WHERE alive), clock_timestamp()
