WITH found AS MATERIALIZED (
  SELECT ctid AS place FROM idempotency_keys
   WHERE ctid >= format('(%s,0)', $1::int)::tid AND ctid < format('(%s,0)', $2::int)::tid
     AND (right(principal, length($3)) = $3 OR position(convert_to($4::text, 'UTF8') IN response) > 0)
), gone AS (
  -- No other row takes one of these places, because the snapshot of this statement keeps the rows that it has found. But if
  -- another transaction gives an expired key a new answer meanwhile, Postgres goes on to the new answer. An older release,
  -- such as 15.3, does not check the place of that again, so the condition stands here, too.
  DELETE FROM idempotency_keys
   WHERE $5 AND ctid = ANY (ARRAY(SELECT place FROM found))
     AND (right(principal, length($3)) = $3 OR position(convert_to($4::text, 'UTF8') IN response) > 0)
  RETURNING true
)
SELECT CASE WHEN $5 THEN (SELECT count(*) FROM gone) ELSE (SELECT count(*) FROM found) END,
       pg_relation_size('idempotency_keys') > $2::bigint * current_setting('block_size')::int
