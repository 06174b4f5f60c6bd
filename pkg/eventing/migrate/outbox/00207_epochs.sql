-- The owner's epochs: the newest is the present one. After a restore to an earlier point
-- in time, versions that were published once are assigned again. The operator begins a
-- new epoch then, and positions compare by (epoch, version).

-- +goose Up
CREATE TABLE outbox_epochs (
  epoch         bigint      PRIMARY KEY CHECK (epoch > 0),
  began_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- actor is the operator's name, as given to the command. database_role is the name of the
  -- database role that the command has logged in as.
  actor         text        NOT NULL,
  database_role text        NOT NULL DEFAULT session_user,
  why           text        NOT NULL
);
INSERT INTO outbox_epochs (epoch, actor, why) VALUES (1, 'migration', 'the first epoch');

-- Written, never rewritten.
-- +goose StatementBegin
DO $$ BEGIN EXECUTE format('GRANT SELECT, INSERT ON outbox_epochs TO %I', current_setting('eventing.role')); END $$;
-- +goose StatementEnd

-- Append calls it for an event of another epoch than the present one.
-- +goose StatementBegin
CREATE FUNCTION outbox_refuses_epoch(event bigint, present bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'an event of epoch %: the owner is in epoch %', event, present USING ERRCODE = 'LS004';
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION outbox_refuses_epoch(bigint, bigint);
DROP TABLE outbox_epochs;
