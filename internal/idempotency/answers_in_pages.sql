WITH found AS MATERIALIZED (
  SELECT ctid AS place FROM idempotency_keys
   WHERE ctid >= format('(%s,0)', $1::int)::tid AND ctid < format('(%s,0)', $2::int)::tid
     AND (right(principal, length($3)) = $3 OR position(convert_to($4::text, 'UTF8') IN response) > 0)
), gone AS (
  DELETE FROM idempotency_keys WHERE $5 AND ctid = ANY (ARRAY(SELECT place FROM found))
)
SELECT (SELECT count(*) FROM found), pg_relation_size('idempotency_keys') > $2::bigint * current_setting('block_size')::int
