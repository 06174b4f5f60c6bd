-- A tenant's list passes no rows of others. A binary of the release before lists by the
-- primary key meanwhile, and passes tombstones.

-- +goose NO TRANSACTION
-- +goose Up
-- An index that was started and not finished is invalid and blocks the name.
DROP INDEX CONCURRENTLY IF EXISTS video.videos_of_tenant;
CREATE INDEX CONCURRENTLY videos_of_tenant ON video.videos (tenant_id, video_id) WHERE deleted_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS video.videos_not_deleted;

-- +goose Down
CREATE INDEX CONCURRENTLY videos_not_deleted ON video.videos (video_id) WHERE deleted_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS video.videos_of_tenant;
