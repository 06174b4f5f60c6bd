-- Operators' actions on events: the table of pkg/eventing/operator/audit.

-- +goose Up
CREATE TABLE operator_actions (
  id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at             timestamptz NOT NULL DEFAULT clock_timestamp(),
  action         text        NOT NULL,
  -- The operator's name, as given to the command, and the database's name of the role.
  actor          text        NOT NULL,
  database_role  text        NOT NULL DEFAULT session_user,
  why            text        NOT NULL,
  -- Null if a message was no event.
  event_id       uuid,
  message_id     text        NOT NULL DEFAULT '',
  aggregate_type text        NOT NULL DEFAULT '',
  aggregate_id   text        NOT NULL DEFAULT '',
  version        bigint      NOT NULL DEFAULT 0,
  -- The complete content that the action removed, so that nothing is lost by it.
  record         jsonb
);
CREATE INDEX operator_actions_by_event ON operator_actions (event_id);

-- Written, never rewritten.
-- +goose StatementBegin
DO $$ BEGIN EXECUTE format('GRANT SELECT, INSERT ON operator_actions TO %I', current_setting('eventing.role')); END $$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE operator_actions;
