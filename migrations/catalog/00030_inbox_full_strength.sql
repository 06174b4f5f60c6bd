-- Columns for package inbox: to count started attempts, to keep the time and the source
-- of an event, and to purge settled rows.

-- +goose Up
ALTER TABLE catalog.inbox
  ADD COLUMN last_seen_at timestamptz NOT NULL DEFAULT now(),
  -- The number of attempts by processes that started one and have not recorded its end.
  ADD COLUMN begun        int         NOT NULL DEFAULT 0,
  -- The source that brought it to its status: the subscription, or an operator.
  ADD COLUMN source       text        NOT NULL DEFAULT 'stream' CHECK (source IN ('stream', 'redrive'));
-- The purge goes by age. Rows arrive in this order, so the index grows at one end.
CREATE INDEX inbox_settled ON catalog.inbox (consumer, received_at) WHERE status IN ('done', 'discarded');
GRANT DELETE ON catalog.inbox TO catalog_service;

-- The consumers that run; one that is here without running has died.
CREATE TABLE catalog.inbox_runs (
  consumer text        NOT NULL,
  run      uuid        NOT NULL,
  seen_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (consumer, run)
);
GRANT SELECT, INSERT, UPDATE, DELETE ON catalog.inbox_runs TO catalog_service;

-- +goose Down
DROP TABLE catalog.inbox_runs;
REVOKE DELETE ON catalog.inbox FROM catalog_service;
DROP INDEX catalog.inbox_settled;
ALTER TABLE catalog.inbox DROP COLUMN source, DROP COLUMN begun, DROP COLUMN last_seen_at;
