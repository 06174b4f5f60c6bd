WITH RECURSIVE consumers (consumer) AS (
  SELECT min(consumer) FROM inbox
  UNION ALL
  SELECT (SELECT min(consumer) FROM inbox i WHERE i.consumer > c.consumer) FROM consumers c WHERE c.consumer IS NOT NULL
)
SELECT consumer, event_id, event_type AS type, aggregate_type, aggregate_id, version, status, attempts,
       coalesce(last_error, '') AS last_error, message_id, publish_time AS published_at, received_at,
       last_seen_at AS seen_at, processed_at
  FROM consumers JOIN inbox USING (consumer)
 WHERE event_id = $1 ORDER BY consumer
