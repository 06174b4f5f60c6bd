-- The meaning of each table, column and index, where an administrator looks for it: psql's \d+ shows these comments. They
-- change no row, and wait for no reader and no writer.

-- +goose Up
SET LOCAL lock_timeout = '1500ms';
COMMENT ON TABLE inbox IS 'The events that the consumers have met. A row is written in the transaction of the event''s effect, so a redelivery finds it. A consumer deletes done and discarded rows after the retention. Held and dead rows stay until they are settled.';
COMMENT ON COLUMN inbox.consumer IS 'The subscription.';
COMMENT ON COLUMN inbox.event_id IS 'The id of the event, the same in each delivery.';
COMMENT ON COLUMN inbox.status IS 'done: the effect is committed. held: the event waits, for a repair or for another attempt. dead: it is in the dead-letter topic. discarded: an operator has decided against it.';
COMMENT ON COLUMN inbox.attempts IS 'The failures that were the event''s own. Outages do not count.';
COMMENT ON COLUMN inbox.event_type IS 'The full name of the payload''s message type.';
COMMENT ON COLUMN inbox.aggregate_type IS 'The kind of thing that has changed.';
COMMENT ON COLUMN inbox.aggregate_id IS 'The thing that has changed.';
COMMENT ON COLUMN inbox.version IS 'The version that the event makes.';
COMMENT ON COLUMN inbox.message_id IS 'The broker''s id of the message. A second publication of the event has another.';
COMMENT ON COLUMN inbox.publish_time IS 'The time at which the broker accepted the message, by its clock.';
COMMENT ON COLUMN inbox.received_at IS 'The time of the transaction that wrote the row.';
COMMENT ON COLUMN inbox.processed_at IS 'The time at which the event was applied, or settled by an operator.';
COMMENT ON COLUMN inbox.last_error IS 'The error of the last failure.';
COMMENT ON COLUMN inbox.last_seen_at IS 'The time of the last delivery or attempt.';
COMMENT ON COLUMN inbox.begun IS 'The attempts that were started and whose end is not recorded, as after a crash of the process.';
COMMENT ON COLUMN inbox.source IS 'The way on which the event came to its status. stream: the subscription. redrive: an operator''s command.';
COMMENT ON INDEX inbox_unsettled IS 'The events that wait, and the dead letters.';
COMMENT ON INDEX inbox_settled IS 'The retention deletes by it.';
COMMENT ON TABLE inbox_runs IS 'One row for each running consumer. A held row of no running consumer was left by one that has died. A consumer deletes the rows of those that are gone for long.';
COMMENT ON COLUMN inbox_runs.consumer IS 'The subscription.';
COMMENT ON COLUMN inbox_runs.run IS 'A run of a consumer, in one process.';
COMMENT ON COLUMN inbox_runs.seen_at IS 'The time at which the run wrote the row last.';

-- +goose Down
-- The comments of a table end with it.
