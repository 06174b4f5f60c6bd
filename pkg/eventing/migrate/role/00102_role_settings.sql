-- Settings that the library and the service rely on, independent of the server's
-- defaults.
--
-- synchronous_commit: with off, a crash of the server takes back commits that were
-- confirmed to callers and consumers. Isolation: a transaction that has waited for a
-- row must see the commits of that row's writers. A setting that an administrator has
-- made for the role before stays.
--
-- Schemas that are older than the library's own numbers have the settings already:
-- there it changes nothing.

-- +goose Up
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
          FROM (VALUES ('synchronous_commit', 'on'), ('default_transaction_isolation', 'read committed')) AS v (name, value)
         WHERE NOT EXISTS (
               SELECT FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) AS c
                WHERE r.rolname = service AND s.setdatabase = 0 AND c LIKE name || '=%')
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
