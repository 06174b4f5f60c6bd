-- Which event made the version of a row. Another event of that version, or one that
-- follows another event, is of another history than the row: the owner has lost
-- commits. NULL is unknown: rows of before. No default, so nothing is rewritten.

-- +goose Up
SET LOCAL lock_timeout = '2s';
ALTER TABLE catalog.video_projection ADD COLUMN last_event_id uuid;
ALTER TABLE catalog.video_user_engagements_projection ADD COLUMN last_event_id uuid;

-- +goose Down
ALTER TABLE catalog.video_user_engagements_projection DROP COLUMN last_event_id;
ALTER TABLE catalog.video_projection DROP COLUMN last_event_id;
