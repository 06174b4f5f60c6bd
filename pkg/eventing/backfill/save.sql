UPDATE backfills
   SET next_id = $3, rows_read = $4, rows_written = $5,
       finished_at = CASE WHEN $6 THEN clock_timestamp() END,
       leased_until = CASE WHEN NOT $6 THEN clock_timestamp() + $7::bigint * interval '1 microsecond' END
 WHERE aggregate_type = $1 AND holder = $2
RETURNING finished_at
