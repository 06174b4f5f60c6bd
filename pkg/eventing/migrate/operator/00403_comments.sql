-- The meaning of the table, its columns, indexes and function, where an administrator looks for it: psql's \d+ and \df+ show
-- these comments. They change no row, and wait for no reader and no writer.

-- +goose Up
SET LOCAL lock_timeout = '1500ms';
COMMENT ON TABLE operator_actions IS 'The actions of operators on events and rows. The role of the service adds rows, and can change none. No row is deleted.';
COMMENT ON COLUMN operator_actions.id IS 'The order of the actions.';
COMMENT ON COLUMN operator_actions.at IS 'The time of the action.';
COMMENT ON COLUMN operator_actions.action IS 'The name of the action, such as skip, retry, redrive or discard.';
COMMENT ON COLUMN operator_actions.actor IS 'The operator, as given to the command.';
COMMENT ON COLUMN operator_actions.database_role IS 'The role that the command has logged in as.';
COMMENT ON COLUMN operator_actions.why IS 'The reason that the operator gave.';
COMMENT ON COLUMN operator_actions.event_id IS 'The event. NULL if a message was none, and for actions on rows.';
COMMENT ON COLUMN operator_actions.message_id IS 'The broker''s id of the message, if the action was on a message.';
COMMENT ON COLUMN operator_actions.aggregate_type IS 'The kind of the aggregate that was acted on. Empty if the action was on none.';
COMMENT ON COLUMN operator_actions.aggregate_id IS 'The aggregate that was acted on.';
COMMENT ON COLUMN operator_actions.version IS 'The version of the event.';
COMMENT ON COLUMN operator_actions.record IS 'The content that the action has removed, so that nothing is lost by it. An erasure of a user empties it.';
COMMENT ON INDEX operator_actions_by_event IS 'The actions on an event.';
COMMENT ON INDEX operator_actions_with_record IS 'The content that an erasure removes.';
COMMENT ON FUNCTION operator_actions_forget(text, text[], text, text) IS 'Removes the content that actions on these aggregates have kept, and adds an entry about it. It runs as the owner of the table.';

-- +goose Down
-- The comments of a table end with it.
