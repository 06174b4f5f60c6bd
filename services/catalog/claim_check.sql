UPDATE reconcile_checks
   SET holder = $2, leased_until = clock_timestamp() + $4::bigint * interval '1 microsecond',
       next_id = CASE WHEN next_id = '' THEN $5 ELSE next_id END,
       started_at = CASE WHEN next_id = '' OR started_at > clock_timestamp() THEN clock_timestamp() ELSE started_at END,
       finished_at = CASE WHEN finished_at <= clock_timestamp() THEN finished_at END,
       rows_checked = CASE WHEN next_id = '' THEN 0 ELSE rows_checked END
 WHERE aggregate_type = $1
   AND (holder = $2 OR leased_until IS NULL
        OR leased_until NOT BETWEEN clock_timestamp() AND clock_timestamp() + $4::bigint * interval '1 microsecond')
   AND NOT EXISTS (SELECT FROM backfills WHERE aggregate_type = $1 AND finished_at IS NULL
         AND (started_at BETWEEN clock_timestamp() - interval '1 day' AND clock_timestamp()
              OR started_at > clock_timestamp()
                 AND leased_until BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 day'))
   AND (next_id <> '' OR started_at IS NULL
        OR started_at NOT BETWEEN clock_timestamp() - $3::bigint * interval '1 microsecond' AND clock_timestamp())
RETURNING next_id
