{{define "take pages to purge"}}
WITH mine AS MATERIALIZED (
	SELECT next_page,
	       pg_relation_size('outbox') <= (next_page + $2) * current_setting('block_size')::bigint AS last
	  FROM outbox_retention
	 WHERE next_page > 0 OR passed_at <= now() - $1::interval OR passed_at > clock_timestamp()
	   FOR UPDATE SKIP LOCKED
), taken AS (
	UPDATE outbox_retention r
	   SET next_page = CASE WHEN m.last THEN 0 ELSE m.next_page + $2 END,
	       passed_at = CASE WHEN m.last THEN now() ELSE r.passed_at END
	  FROM mine m
)
SELECT next_page FROM mine
{{end}}

{{/* Only the rows that are to be deleted or emptied are locked. A row's lock is written into the row's page
   and into the log. If each pass locked the newest events of all aggregates, which stay for ever, each pass would
   write the whole table. */}}
{{/* The event behind is published. An event that is not published may be removed by an operator while this
   statement runs, and Append would then find no event of the aggregate. */}}
{{define "followed"}}
coalesce((SELECT n.published_at IS NOT NULL FROM outbox n
	                WHERE n.aggregate_type = o.aggregate_type AND n.aggregate_id = o.aggregate_id AND n.version > o.version
	                ORDER BY n.version LIMIT 1), false)
{{- end}}

{{define "purge"}}
WITH old AS MATERIALIZED (
	SELECT o.ctid AS place, {{template "followed"}} AS followed
	  FROM outbox o
	 WHERE o.ctid >= format('(%s,0)', $1::int)::tid AND o.ctid < format('(%s,0)', $2::int)::tid
	   AND o.published_at < now() - $3::interval
	   AND (o.payload <> '' OR {{template "followed"}})
	   FOR UPDATE OF o SKIP LOCKED
), gone AS (
	DELETE FROM outbox WHERE ctid = ANY(ARRAY(SELECT place FROM old WHERE followed))
	RETURNING 1
), emptied AS (
	UPDATE outbox SET payload = '' WHERE ctid = ANY(ARRAY(SELECT place FROM old WHERE NOT followed)) AND payload <> ''
)
SELECT (SELECT count(*) FROM gone),
       pg_relation_size('outbox') > $2::bigint * current_setting('block_size')::int
{{end}}
