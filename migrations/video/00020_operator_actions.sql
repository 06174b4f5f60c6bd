-- Operators' actions on events: the table of internal/operator/audit.

-- +goose Up
CREATE TABLE video.operator_actions (
  id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at             timestamptz NOT NULL DEFAULT clock_timestamp(),
  action         text        NOT NULL,
  -- The operator's name, as given to the command, and the database's name of the role.
  actor          text        NOT NULL,
  database_role  text        NOT NULL DEFAULT session_user,
  why            text        NOT NULL,
  event_id       uuid,
  message_id     text        NOT NULL DEFAULT '',
  aggregate_type text        NOT NULL DEFAULT '',
  aggregate_id   text        NOT NULL DEFAULT '',
  version        bigint      NOT NULL DEFAULT 0,
  -- The complete content that the action removed, so that nothing is lost by it.
  record         jsonb
);
CREATE INDEX operator_actions_by_event ON video.operator_actions (event_id);

-- Written, never rewritten.
GRANT SELECT, INSERT ON video.operator_actions TO video_service;
-- `video outbox skip` and `video outbox purge`.
GRANT DELETE ON video.outbox TO video_service;

-- +goose Down
REVOKE DELETE ON video.outbox FROM video_service;
DROP TABLE video.operator_actions;
