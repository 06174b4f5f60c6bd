WITH published AS MATERIALIZED (
	SELECT o.id, o.followed
	  FROM (SELECT DISTINCT id FROM unnest($2::text[]) AS id ORDER BY id) AS aggregate
	 CROSS JOIN LATERAL (
		SELECT o.id, f.followed
		  FROM outbox o, LATERAL (SELECT coalesce((SELECT n.published_at IS NOT NULL FROM outbox n
		         WHERE n.aggregate_type = o.aggregate_type AND n.aggregate_id = o.aggregate_id AND n.version > o.version
		         ORDER BY n.version LIMIT 1), false) AS followed) AS f
		 WHERE o.aggregate_type = $1 AND o.aggregate_id = aggregate.id AND o.published_at IS NOT NULL
		   AND (f.followed OR o.payload <> '' OR o.last_error IS NOT NULL)
		 ORDER BY o.version
		 LIMIT $3
		   FOR UPDATE OF o) AS o
	 LIMIT $3
), gone AS (
	DELETE FROM outbox WHERE id IN (SELECT id FROM published WHERE followed)
), emptied AS (
	UPDATE outbox SET payload = '', last_error = NULL WHERE id IN (SELECT id FROM published WHERE NOT followed)
)
SELECT (SELECT count(*) FROM published),
       CASE WHEN (SELECT count(*) FROM published) < $3 THEN (SELECT count(*) FROM outbox
         WHERE aggregate_type = $1 AND aggregate_id = ANY ($2::text[]) AND payload <> '' AND published_at IS NULL) ELSE 0 END
