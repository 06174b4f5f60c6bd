-- Each event names its predecessor: a consumer that has another predecessor detects that
-- the owner has lost commits, in a failover or by a restore. NULL means unknown, for
-- events from before this column. No default, so nothing is rewritten.
--
-- Schemas that are older than the library's own numbers have the column already: there
-- the table is not locked.

-- +goose Up
-- +goose StatementBegin
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'outbox'::regclass AND attname = 'previous_event_id') THEN
    SET LOCAL lock_timeout = '2s';
    ALTER TABLE outbox ADD COLUMN previous_event_id uuid;
  END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
ALTER TABLE outbox DROP COLUMN IF EXISTS previous_event_id;
