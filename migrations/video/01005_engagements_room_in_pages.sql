-- A change of a row finds room in the row's page, so that it writes no index (a HOT update). Pages that are full
-- already get their room when their rows are written again. A fork without engagements has no such table.

-- +goose Up
SET LOCAL lock_timeout = '1500ms';
ALTER TABLE IF EXISTS video.engagements SET (fillfactor = 90);

-- +goose Down
SET LOCAL lock_timeout = '1500ms';
ALTER TABLE IF EXISTS video.engagements RESET (fillfactor);
