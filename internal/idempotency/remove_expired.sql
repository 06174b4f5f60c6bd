WITH removed AS (
  DELETE FROM idempotency_keys
   WHERE (principal, operation, key) IN (
         SELECT principal, operation, key
           FROM idempotency_keys
          WHERE created_at >= $2 AND created_at <= now() - interval '24 hours'
          ORDER BY created_at
          LIMIT $1
            FOR UPDATE SKIP LOCKED)
  RETURNING created_at)
SELECT count(*), max(created_at) FROM removed
