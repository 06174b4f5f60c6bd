-- The service's statements read few rows, however large its tables are. Postgres compiles a statement of which it expects
-- a high cost, and runs it in several processes. It expects that of a search, and without statistics of a list, when
-- the tables are large. The compilation takes hundreds of milliseconds, the start of the processes some milliseconds, and such a
-- plan computes in advance what the statement would not need. A setting that an administrator has made stays.

-- +goose Up
SET LOCAL lock_timeout = '1500ms';
-- +goose StatementBegin
DO $$
DECLARE
  service text := current_setting('eventing.role');
  setting record;
BEGIN
  FOR attempt IN 1..20 LOOP
    BEGIN
      FOR setting IN
        SELECT name, value
          FROM (VALUES ('jit', 'off'), ('max_parallel_workers_per_gather', '0')) AS v (name, value)
         WHERE NOT EXISTS (
               SELECT FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) AS c
                WHERE r.rolname = service AND s.setdatabase = 0 AND lower(split_part(c, '=', 1)) = name)
      LOOP
        EXECUTE format('ALTER ROLE %I SET %I = %L', service, setting.name, setting.value);
      END LOOP;
      RETURN;
    EXCEPTION
      -- internal_error is "tuple concurrently updated" from a system table.
      WHEN unique_violation OR internal_error THEN
        PERFORM pg_sleep(random() * 0.05);
    END;
  END LOOP;
  RAISE EXCEPTION 'role %: still contended after 20 attempts', service;
END
$$;
-- +goose StatementEnd

-- +goose Down
