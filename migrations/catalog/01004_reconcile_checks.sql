-- How far the check of each projection against its owner has come. An instance continues a
-- check that another one has begun.

-- +goose Up
CREATE TABLE catalog.reconcile_checks (
  aggregate_type text        PRIMARY KEY,
  -- The id at which the check continues; empty between two checks.
  next_id        text        NOT NULL DEFAULT '',
  -- Of this check so far.
  rows_checked   bigint      NOT NULL DEFAULT 0,
  started_at     timestamptz,
  -- When the last whole check ended.
  finished_at    timestamptz,
  -- The instance that checks, until its lease ends.
  holder         uuid,
  leased_until   timestamptz
);

GRANT SELECT, INSERT, UPDATE ON catalog.reconcile_checks TO catalog_service;

-- +goose Down
DROP TABLE catalog.reconcile_checks;
