-- The outbox of pkg/eventing/outbox; the package doc explains the states of an event.

-- +goose Up
CREATE TABLE outbox (
  id               uuid        PRIMARY KEY,
  aggregate_type   text        NOT NULL,
  aggregate_id     text        NOT NULL,
  event_type       text        NOT NULL,
  version          bigint      NOT NULL CHECK (version > 0),
  schema_version   int         NOT NULL DEFAULT 1,
  payload          bytea       NOT NULL,
  occurred_at      timestamptz NOT NULL DEFAULT now(),
  tenant_id        text        NOT NULL DEFAULT '',
  epoch            bigint      NOT NULL DEFAULT 1,
  traceparent      text        NOT NULL DEFAULT '',

  published_at     timestamptz,
  publish_attempts int         NOT NULL DEFAULT 0,
  next_retry_at    timestamptz,
  lock_token       text,
  locked_at        timestamptz,
  parked_at        timestamptz,
  last_error       text,

  -- Refuses a second event for one version.
  UNIQUE (aggregate_type, aggregate_id, version),
  CHECK ((lock_token IS NULL) = (locked_at IS NULL)),
  CHECK (published_at IS NULL OR lock_token IS NULL)
);
-- The claim reads this index, oldest first. Published rows leave it.
CREATE INDEX outbox_pending ON outbox (occurred_at, id) WHERE published_at IS NULL;
-- For the question whether an aggregate has an older unpublished event.
CREATE INDEX outbox_pending_by_aggregate ON outbox (aggregate_type, aggregate_id, version)
  WHERE published_at IS NULL;
-- The rows that a relay renews and hands back.
CREATE INDEX outbox_leased ON outbox (lock_token) WHERE lock_token IS NOT NULL;

-- A queue's dead rows cost every claim, so vacuum comes early and often.
ALTER TABLE outbox SET (
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_analyze_scale_factor = 0.05
);

-- +goose StatementBegin
DO $$ BEGIN EXECUTE format('GRANT SELECT, INSERT, UPDATE ON outbox TO %I', current_setting('eventing.role')); END $$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE outbox;
