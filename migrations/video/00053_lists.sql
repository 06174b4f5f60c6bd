-- An index for lists that passes no tombstones.

-- +goose NO TRANSACTION
-- +goose Up
-- An index that was started and not finished is invalid and blocks the name.
DROP INDEX CONCURRENTLY IF EXISTS video.videos_not_deleted;
CREATE INDEX CONCURRENTLY videos_not_deleted ON video.videos (video_id) WHERE deleted_at IS NULL;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS video.videos_not_deleted;
