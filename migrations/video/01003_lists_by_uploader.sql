-- An uploader's list passes neither tombstones nor rows of other tenants, whether or not the planner has
-- statistics. Each row is in one of the two indexes. Only an erasure lists tombstones. A binary of the
-- release before reads the whole table for each batch of an erasure meanwhile, because its statement can use neither index.

-- +goose NO TRANSACTION
-- +goose Up
-- An index that was started and not finished is invalid and blocks the name.
DROP INDEX CONCURRENTLY IF EXISTS video.videos_of_uploader;
CREATE INDEX CONCURRENTLY videos_of_uploader ON video.videos (uploader_id, tenant_id, video_id) WHERE deleted_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS video.videos_deleted_of_uploader;
CREATE INDEX CONCURRENTLY videos_deleted_of_uploader ON video.videos (uploader_id, video_id) WHERE deleted_at IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS video.videos_by_uploader;

-- +goose Down
CREATE INDEX CONCURRENTLY videos_by_uploader ON video.videos (uploader_id, video_id);
DROP INDEX CONCURRENTLY IF EXISTS video.videos_deleted_of_uploader;
DROP INDEX CONCURRENTLY IF EXISTS video.videos_of_uploader;
