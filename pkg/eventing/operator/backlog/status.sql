SELECT count(*),
       (SELECT count(*) FROM outbox WHERE published_at IS NULL AND parked_at >= '-infinity' AND parked_at <= 'infinity'),
       count(*) FILTER (WHERE blocked),
       coalesce(extract(epoch FROM now() - min(occurred_at) FILTER (WHERE NOT parked AND NOT blocked)), 0)::float8
  FROM (SELECT o.occurred_at, o.parked_at IS NOT NULL AS parked,
               o.parked_at IS NULL AND p.version IS NOT NULL AS blocked
          FROM (SELECT aggregate_type, aggregate_id, version, occurred_at, parked_at FROM outbox_pending LIMIT $1) o
          LEFT JOIN (SELECT aggregate_type, aggregate_id, min(version) AS version
                       FROM outbox
                      WHERE published_at IS NULL AND parked_at >= '-infinity' AND parked_at <= 'infinity'
                      GROUP BY aggregate_type, aggregate_id) p
            ON p.aggregate_type = o.aggregate_type AND p.aggregate_id = o.aggregate_id AND p.version < o.version) e
