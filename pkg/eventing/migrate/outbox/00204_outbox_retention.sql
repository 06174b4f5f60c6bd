-- The progress of the relays in removing old published events: they share one pass over
-- the table, which continues where it ended. See pkg/eventing/outbox/queue.

-- +goose Up
CREATE TABLE outbox_retention (
  one       boolean     PRIMARY KEY DEFAULT true CHECK (one),
  next_page bigint      NOT NULL DEFAULT 0,
  -- The time at which the last pass reached the end of the table.
  passed_at timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO outbox_retention DEFAULT VALUES;
-- +goose StatementBegin
DO $$ BEGIN EXECUTE format('GRANT SELECT, UPDATE ON outbox_retention TO %I', current_setting('eventing.role')); END $$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE outbox_retention;
