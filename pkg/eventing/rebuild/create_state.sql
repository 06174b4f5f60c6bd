CREATE TABLE rebuild_state (
  only_row       boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
  phase          text        NOT NULL,
  aggregate_type text        NOT NULL,
  next_id        text        NOT NULL DEFAULT '',
  rows           bigint      NOT NULL DEFAULT 0,
  started_by     text        NOT NULL,
  started_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  changed_at     timestamptz NOT NULL DEFAULT clock_timestamp()
)
