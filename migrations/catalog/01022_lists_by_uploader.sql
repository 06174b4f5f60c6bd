-- An uploader's list passes no rows of other tenants, whether or not the planner has statistics.

-- +goose NO TRANSACTION
-- +goose Up
-- An index that was started and not finished is invalid and blocks the name.
DROP INDEX CONCURRENTLY IF EXISTS catalog.video_projection_of_uploader;
CREATE INDEX CONCURRENTLY video_projection_of_uploader ON catalog.video_projection (uploader_id, tenant_id, video_id) WHERE deleted_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS catalog.video_projection_by_uploader;

-- +goose Down
CREATE INDEX CONCURRENTLY video_projection_by_uploader ON catalog.video_projection (uploader_id, video_id) WHERE deleted_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS catalog.video_projection_of_uploader;
