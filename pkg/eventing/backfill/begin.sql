UPDATE backfills
   SET holder = $2, leased_until = clock_timestamp() + $3::bigint * interval '1 microsecond',
       next_id = CASE WHEN $4 THEN '' ELSE next_id END,
       rows_read = CASE WHEN $4 THEN 0 ELSE rows_read END,
       rows_written = CASE WHEN $4 THEN 0 ELSE rows_written END,
       started_at = CASE WHEN $4 OR started_at IS NULL THEN clock_timestamp() ELSE started_at END,
       finished_at = NULL
 WHERE aggregate_type = $1
RETURNING rows_read, rows_written, next_id, started_at, finished_at
