-- +goose Up
CREATE TABLE catalog.video_projection (
  video_id         uuid        PRIMARY KEY,
  uploader_id      uuid,
  title            text        NOT NULL DEFAULT '',
  description      text        NOT NULL DEFAULT '',
  duration_seconds bigint      NOT NULL DEFAULT 0,
  published_at     timestamptz,
  -- The owner's version and epoch. They only grow, unless the owner has lost commits.
  version          bigint      NOT NULL CHECK (version > 0),
  epoch            bigint      NOT NULL DEFAULT 1,
  created_at       timestamptz,
  updated_at       timestamptz NOT NULL,
  -- A tombstone keeps id, version and this, so that a late update of a deleted video
  -- finds a newer version.
  deleted_at       timestamptz,
  applied_at       timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX video_projection_by_uploader ON catalog.video_projection (uploader_id, video_id)
  WHERE deleted_at IS NULL;

GRANT SELECT, INSERT, UPDATE ON catalog.video_projection TO catalog_service;

-- +goose Down
DROP TABLE catalog.video_projection;
