-- The rows that a later build brings up to date. Usually empty.

-- +goose NO TRANSACTION
-- +goose Up
-- An index that was started and not finished is invalid and blocks the name.
DROP INDEX CONCURRENTLY IF EXISTS catalog.video_projection_incomplete;
CREATE INDEX CONCURRENTLY video_projection_incomplete ON catalog.video_projection (video_id, revision) WHERE incomplete;
DROP INDEX CONCURRENTLY IF EXISTS catalog.video_user_engagements_incomplete;
CREATE INDEX CONCURRENTLY video_user_engagements_incomplete ON catalog.video_user_engagements_projection (user_id, video_id, revision) WHERE incomplete;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS catalog.video_user_engagements_incomplete;
DROP INDEX CONCURRENTLY IF EXISTS catalog.video_projection_incomplete;
