-- Columns for package inbox: to count started attempts, to keep the time and the source
-- of an event, and to purge settled rows.

-- +goose Up
ALTER TABLE inbox
  ADD COLUMN last_seen_at timestamptz NOT NULL DEFAULT now(),
  -- The number of attempts by processes that started one and have not recorded its end.
  ADD COLUMN begun        int         NOT NULL DEFAULT 0,
  -- The source that brought it to its status: the subscription, or an operator.
  ADD COLUMN source       text        NOT NULL DEFAULT 'stream' CHECK (source IN ('stream', 'redrive'));
-- The purge goes by age. Rows arrive in this order, so the index grows at one end.
CREATE INDEX inbox_settled ON inbox (consumer, received_at) WHERE status IN ('done', 'discarded');
-- +goose StatementBegin
DO $$ BEGIN EXECUTE format('GRANT DELETE ON inbox TO %I', current_setting('eventing.role')); END $$;
-- +goose StatementEnd

-- The running consumers. A row without a running consumer is left by one that has died.
CREATE TABLE inbox_runs (
  consumer text        NOT NULL,
  run      uuid        NOT NULL,
  seen_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (consumer, run)
);
-- +goose StatementBegin
DO $$ BEGIN EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON inbox_runs TO %I', current_setting('eventing.role')); END $$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE inbox_runs;
-- +goose StatementBegin
DO $$ BEGIN EXECUTE format('REVOKE DELETE ON inbox FROM %I', current_setting('eventing.role')); END $$;
-- +goose StatementEnd
DROP INDEX inbox_settled;
ALTER TABLE inbox DROP COLUMN source, DROP COLUMN begun, DROP COLUMN last_seen_at;
