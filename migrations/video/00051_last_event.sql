-- Which event made the version of a row. An event names the one before it, so that
-- a consumer with another one there knows that its history is not the owner's: the
-- owner has lost commits, in a failover or by a restore. NULL is unknown: rows and
-- events of before. No default, so nothing is rewritten.

-- +goose Up
SET LOCAL lock_timeout = '2s';
ALTER TABLE video.videos ADD COLUMN last_event_id uuid;
ALTER TABLE video.engagements ADD COLUMN last_event_id uuid;
ALTER TABLE video.outbox ADD COLUMN previous_event_id uuid;

-- +goose Down
ALTER TABLE video.outbox DROP COLUMN previous_event_id;
ALTER TABLE video.engagements DROP COLUMN last_event_id;
ALTER TABLE video.videos DROP COLUMN last_event_id;
