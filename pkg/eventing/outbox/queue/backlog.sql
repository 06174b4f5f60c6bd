-- Right after a large import the planner has no statistics. It would expect that half of the rows
-- are parked, and read the whole table. For a range with two bounds it expects a two-hundredth, and
-- uses the index.
--
-- retried has rows that are older than all lows, because relays leave a retry to its time. page has
-- the next rows of the search, in its parts: $4 and $5 are where each part begins, $6 is its last
-- transaction. Its loop reads one part after the other, and stops at the limit. $7 are the events
-- that the search has found earlier.
WITH parked AS MATERIALIZED (
	SELECT aggregate_type, aggregate_id, min(version) AS version
	  FROM outbox
	 WHERE parked_at >= '-infinity' AND parked_at <= 'infinity' AND published_at IS NULL
	 GROUP BY 1, 2
), pending AS MATERIALIZED (
	SELECT o.aggregate_type, o.aggregate_id, o.version, o.tenant_id, o.occurred_at, o.id, o.parked_at
	  FROM outbox_pending o
	 LIMIT $1
), retried AS MATERIALIZED (
	SELECT o.aggregate_type, o.aggregate_id, o.version, o.tenant_id, o.occurred_at, o.id
	  FROM outbox o
	 WHERE o.next_retry_at >= '-infinity' AND o.next_retry_at <= 'infinity' AND o.published_at IS NULL AND o.tenant_id <> ALL($3)
	 LIMIT $1
), page AS MATERIALIZED (
	SELECT o.*, part.n
	  FROM unnest($4::text[], $5::uuid[], $6::text[]) WITH ORDINALITY AS part (xact, id, until, n)
	 CROSS JOIN LATERAL (
		SELECT o.aggregate_type, o.aggregate_id, o.version, o.tenant_id, o.occurred_at, o.id, o.published_at, o.xact
		  FROM outbox o
		 WHERE (o.xact, uuid_send(o.id)) > (part.xact::xid8, uuid_send(part.id)) AND o.xact <= part.until::xid8
		 ORDER BY o.xact, uuid_send(o.id)
		 LIMIT $1) o
	 LIMIT $1
), oldest AS MATERIALIZED (
	SELECT o.id, o.occurred_at
	  FROM (SELECT aggregate_type, aggregate_id, version, tenant_id, occurred_at, id FROM pending
	        UNION ALL
	        SELECT aggregate_type, aggregate_id, version, tenant_id, occurred_at, id FROM retried
	        UNION ALL
	        SELECT aggregate_type, aggregate_id, version, tenant_id, occurred_at, id FROM page WHERE published_at IS NULL
	        UNION ALL
	        SELECT aggregate_type, aggregate_id, version, tenant_id, occurred_at, id FROM outbox WHERE id = ANY($7) AND published_at IS NULL) o
	 WHERE o.tenant_id <> ALL($3)
	   AND NOT EXISTS (SELECT FROM parked p
	                    WHERE p.aggregate_type = o.aggregate_type AND p.aggregate_id = o.aggregate_id AND p.version <= o.version)
	 GROUP BY o.id, o.occurred_at
	 ORDER BY o.occurred_at
	 LIMIT $8
), last AS (
	SELECT n, xact, id FROM page ORDER BY n DESC, xact DESC, uuid_send(id) DESC LIMIT 1
), tenants AS (
	SELECT CASE p.tenant_id WHEN '' THEN 'default' ELSE p.tenant_id END AS tenant,
	       count(*) AS pending, count(p.parked_at) AS parked, min(p.occurred_at) FILTER (WHERE p.parked_at IS NULL) AS oldest
	  FROM pending p
	 GROUP BY 1
	 ORDER BY 2 DESC, 1
	 LIMIT $2
), total AS (
	SELECT (SELECT count(*) FROM pending) AS pending,
	       (SELECT count(*)
	          FROM (SELECT FROM outbox
	                 WHERE parked_at >= '-infinity' AND parked_at <= 'infinity' AND published_at IS NULL
	                 LIMIT $1) p) AS parked
)
SELECT a.pending, a.parked,
       coalesce(greatest(now() - (SELECT min(occurred_at) FROM oldest), interval '0'), interval '0'), ARRAY(SELECT id FROM oldest),
       coalesce((SELECT low::text FROM outbox_relays ORDER BY pg_snapshot_xmax(low), pg_snapshot_xmin(low), length(low::text) DESC LIMIT 1), ''),
       pg_current_snapshot()::text, (SELECT count(*) FROM page), coalesce((SELECT n FROM last), 0),
       coalesce((SELECT xact::text FROM last), ''), (SELECT id FROM last),
       t.tenant, coalesce(t.pending, 0), coalesce(t.parked, 0), coalesce(greatest(now() - t.oldest, interval '0'), interval '0')
  FROM total a
  LEFT JOIN tenants t ON true
 ORDER BY t.pending DESC, t.tenant
