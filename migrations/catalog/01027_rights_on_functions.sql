-- The right to recount counters, also in a database whose default privileges let PUBLIC call no new function. A schema
-- without counters has no such functions. A trigger needs no right to call its function.

-- +goose Up
SET LOCAL lock_timeout = '1500ms';
-- +goose StatementBegin
DO $$
BEGIN
  IF to_regclass('catalog.video_counters') IS NULL THEN
    RETURN;
  END IF;
  EXECUTE format('GRANT EXECUTE ON FUNCTION catalog.recount_videos(), catalog.recount_videos(uuid[]),
                  catalog.tenant_of_counters(uuid) TO %I', current_setting('eventing.role'));
END
$$;
-- +goose StatementEnd

-- +goose Down
-- The rights stay. They end with the functions.
