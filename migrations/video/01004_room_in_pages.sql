-- A change of a row finds room in the row's page, so that it writes no index (a HOT update). Pages that are full
-- already get their room when their rows are written again.

-- +goose Up
SET LOCAL lock_timeout = '1500ms';
ALTER TABLE video.videos SET (fillfactor = 90);

-- +goose Down
SET LOCAL lock_timeout = '1500ms';
ALTER TABLE video.videos RESET (fillfactor);
