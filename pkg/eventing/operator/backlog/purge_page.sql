WITH page AS (
	SELECT id, aggregate_type, aggregate_id, version, published_at FROM outbox WHERE id > $1 ORDER BY id LIMIT $2
), old AS (
	SELECT id
	  FROM page p
	 WHERE published_at <= now() - $3::interval
	   AND (SELECT n.published_at IS NOT NULL FROM outbox n
	         WHERE n.aggregate_type = p.aggregate_type AND n.aggregate_id = p.aggregate_id AND n.version > p.version
	         ORDER BY n.version LIMIT 1)
), locked AS MATERIALIZED (
	SELECT id FROM outbox WHERE $4 AND id IN (SELECT id FROM old) ORDER BY aggregate_type, aggregate_id, version FOR UPDATE
), gone AS (
	DELETE FROM outbox WHERE id IN (SELECT id FROM locked) RETURNING 1
)
SELECT (SELECT count(*) FROM page),
       CASE WHEN $4 THEN (SELECT count(*) FROM gone) ELSE (SELECT count(*) FROM old) END,
       (SELECT id FROM page ORDER BY id DESC LIMIT 1)
