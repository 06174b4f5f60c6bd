-- Settings that the service relies on, independent of the server's defaults, and an
-- index for lists that passes no tombstones.
--
-- synchronous_commit: with off, a crash of the server takes back commits that were
-- confirmed to callers and consumers. Isolation: a transaction that has waited for a
-- row must see the commits of that row's writers. A setting that an administrator has
-- made for the role before stays.

-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
DO $$
DECLARE
  setting record;
BEGIN
  FOR attempt IN 1..20 LOOP
    BEGIN
      FOR setting IN
        SELECT name, value
          FROM (VALUES ('synchronous_commit', 'on'), ('default_transaction_isolation', 'read committed')) AS v (name, value)
         WHERE NOT EXISTS (
               SELECT FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) AS c
                WHERE r.rolname = 'catalog_service' AND s.setdatabase = 0 AND c LIKE name || '=%')
      LOOP
        EXECUTE format('ALTER ROLE catalog_service SET %I = %L', setting.name, setting.value);
      END LOOP;
      RETURN;
    EXCEPTION
      -- internal_error is "tuple concurrently updated" from the catalogue.
      WHEN unique_violation OR internal_error THEN
        PERFORM pg_sleep(random() * 0.05);
    END;
  END LOOP;
  RAISE EXCEPTION 'role catalog_service: still contended after 20 attempts';
END
$$;
-- +goose StatementEnd

-- An index that was started and not finished is invalid and blocks the name.
DROP INDEX CONCURRENTLY IF EXISTS catalog.video_projection_not_deleted;
CREATE INDEX CONCURRENTLY video_projection_not_deleted ON catalog.video_projection (video_id) WHERE deleted_at IS NULL;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS catalog.video_projection_not_deleted;
