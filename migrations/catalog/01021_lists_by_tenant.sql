-- A tenant's list passes no rows of others. A binary of the release before lists by the
-- primary key meanwhile, and passes tombstones.

-- +goose NO TRANSACTION
-- +goose Up
-- An index that was started and not finished is invalid and blocks the name.
DROP INDEX CONCURRENTLY IF EXISTS catalog.video_projection_of_tenant;
CREATE INDEX CONCURRENTLY video_projection_of_tenant ON catalog.video_projection (tenant_id, video_id) WHERE deleted_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS catalog.video_projection_not_deleted;

-- +goose Down
CREATE INDEX CONCURRENTLY video_projection_not_deleted ON catalog.video_projection (video_id) WHERE deleted_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS catalog.video_projection_of_tenant;
