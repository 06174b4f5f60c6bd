-- What a row says, and by which build: the revision of the build that wrote the row's
-- state, and whether the change said more than that build understood. Builds without
-- the columns write neither: their rows stay at 0 and count as complete, since nothing
-- tells what they lack. Constant defaults rewrite no row.

-- +goose Up
SET LOCAL lock_timeout = '2s';
ALTER TABLE catalog.video_projection
  ADD COLUMN revision bigint NOT NULL DEFAULT 0, ADD COLUMN incomplete boolean NOT NULL DEFAULT false;
ALTER TABLE catalog.video_user_engagements_projection
  ADD COLUMN revision bigint NOT NULL DEFAULT 0, ADD COLUMN incomplete boolean NOT NULL DEFAULT false;

-- +goose Down
ALTER TABLE catalog.video_user_engagements_projection DROP COLUMN incomplete, DROP COLUMN revision;
ALTER TABLE catalog.video_projection DROP COLUMN incomplete, DROP COLUMN revision;
