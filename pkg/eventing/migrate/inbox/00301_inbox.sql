-- The inbox of pkg/eventing/inbox.

-- +goose Up
CREATE TABLE inbox (
  consumer       text        NOT NULL,
  event_id       uuid        NOT NULL,
  -- done: its effect is committed, a redelivery is a duplicate.
  -- held: seen, not applied yet (waiting for a repair, or failing).
  -- dead: in the dead-letter topic.
  status         text        NOT NULL CHECK (status IN ('done', 'held', 'dead')),
  -- Failures that were the event's own; outages do not count.
  attempts       int         NOT NULL DEFAULT 0,
  event_type     text        NOT NULL,
  aggregate_type text        NOT NULL,
  aggregate_id   text        NOT NULL,
  version        bigint      NOT NULL,
  message_id     text        NOT NULL,
  -- The broker's clock: when it accepted the message.
  publish_time   timestamptz NOT NULL,
  received_at    timestamptz NOT NULL DEFAULT now(),
  processed_at   timestamptz,
  last_error     text,
  PRIMARY KEY (consumer, event_id)
);
-- For operators and repairs; most rows are done, and stay out of this index.
CREATE INDEX inbox_unsettled ON inbox (consumer, status, received_at) WHERE status <> 'done';

-- +goose StatementBegin
DO $$ BEGIN EXECUTE format('GRANT SELECT, INSERT, UPDATE ON inbox TO %I', current_setting('eventing.role')); END $$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE inbox;
