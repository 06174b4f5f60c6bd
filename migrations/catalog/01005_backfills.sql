-- How far the backfill of each projection has come: the table of pkg/eventing/backfill.

-- +goose Up
CREATE TABLE catalog.backfills (
  aggregate_type text        PRIMARY KEY,
  -- The id at which the next page begins; empty is the first row, or the end of a backfill
  -- that has finished.
  next_id        text        NOT NULL DEFAULT '',
  -- Of the owner, since started_at. A page during which the process was killed is read
  -- again and counted once.
  rows_read      bigint      NOT NULL DEFAULT 0,
  rows_written   bigint      NOT NULL DEFAULT 0,
  started_at     timestamptz,
  finished_at    timestamptz,
  -- The last process that worked; its lease ends when it has not saved for a while.
  holder         uuid,
  leased_until   timestamptz
);

GRANT SELECT, INSERT, UPDATE ON catalog.backfills TO catalog_service;

-- +goose Down
DROP TABLE catalog.backfills;
