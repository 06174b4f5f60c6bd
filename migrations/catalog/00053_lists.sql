-- An index for lists that passes no tombstones.

-- +goose NO TRANSACTION
-- +goose Up
-- An index that was started and not finished is invalid and blocks the name.
DROP INDEX CONCURRENTLY IF EXISTS catalog.video_projection_not_deleted;
CREATE INDEX CONCURRENTLY video_projection_not_deleted ON catalog.video_projection (video_id) WHERE deleted_at IS NULL;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS catalog.video_projection_not_deleted;
