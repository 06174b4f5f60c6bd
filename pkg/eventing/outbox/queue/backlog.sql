WITH parked AS MATERIALIZED (
	SELECT aggregate_type, aggregate_id, min(version) AS version
	  FROM outbox
	 WHERE parked_at IS NOT NULL AND published_at IS NULL
	 GROUP BY 1, 2
), sendable AS MATERIALIZED (
	SELECT o.occurred_at
	  FROM outbox_pending o
	 WHERE o.tenant_id <> ALL($3)
	   AND NOT EXISTS (SELECT FROM parked p
	                    WHERE p.aggregate_type = o.aggregate_type AND p.aggregate_id = o.aggregate_id AND p.version <= o.version)
	 LIMIT $1
), pending AS MATERIALIZED (
	SELECT CASE o.tenant_id WHEN '' THEN 'default' ELSE o.tenant_id END AS tenant, o.occurred_at, o.parked_at
	  FROM outbox_pending o
	 LIMIT $1
), tenants AS (
	SELECT p.tenant, count(*) AS pending, count(p.parked_at) AS parked, min(p.occurred_at) FILTER (WHERE p.parked_at IS NULL) AS oldest
	  FROM pending p
	 GROUP BY 1
	 ORDER BY 2 DESC, 1
	 LIMIT $2
), total AS (
	SELECT (SELECT count(*) FROM pending) AS pending,
	       (SELECT count(*) FROM (SELECT FROM outbox WHERE parked_at IS NOT NULL AND published_at IS NULL LIMIT $1) p) AS parked,
	       (SELECT min(occurred_at) FROM sendable) AS oldest
)
SELECT a.pending, a.parked, coalesce(greatest(now() - a.oldest, interval '0'), interval '0'),
       t.tenant, coalesce(t.pending, 0), coalesce(t.parked, 0), coalesce(greatest(now() - t.oldest, interval '0'), interval '0')
  FROM total a
  LEFT JOIN tenants t ON true
 ORDER BY 5 DESC, 4
