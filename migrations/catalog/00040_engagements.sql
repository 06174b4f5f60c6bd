-- +goose Up
CREATE TABLE catalog.video_user_engagements_projection (
  user_id         uuid        NOT NULL,
  video_id        uuid        NOT NULL,
  liked           boolean     NOT NULL DEFAULT false,
  bookmarked      boolean     NOT NULL DEFAULT false,
  watched_seconds bigint      NOT NULL DEFAULT 0,
  -- The owner's version and epoch. They only grow, unless the owner has lost commits.
  version         bigint      NOT NULL CHECK (version > 0),
  epoch           bigint      NOT NULL DEFAULT 1,
  created_at      timestamptz,
  updated_at      timestamptz NOT NULL,
  -- A tombstone keeps ids, version and this, so that a late event finds a newer
  -- version.
  deleted_at      timestamptz,
  applied_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- Also the order of a user's list.
  PRIMARY KEY (user_id, video_id)
);

GRANT SELECT, INSERT, UPDATE ON catalog.video_user_engagements_projection TO catalog_service;

-- +goose Down
DROP TABLE catalog.video_user_engagements_projection;
