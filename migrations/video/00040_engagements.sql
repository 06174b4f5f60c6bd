-- +goose Up
CREATE TABLE video.engagements (
  user_id         uuid        NOT NULL,
  -- No foreign key: its check would lock a popular video's row for each like, and
  -- videos are never removed, only made tombstones.
  video_id        uuid        NOT NULL,
  -- Continues when an engagement is put again after its deletion.
  version         bigint      NOT NULL CHECK (version > 0),
  liked           boolean     NOT NULL,
  bookmarked      boolean     NOT NULL,
  watched_seconds bigint      NOT NULL CHECK (watched_seconds >= 0),
  created_at      timestamptz NOT NULL,
  updated_at      timestamptz NOT NULL,
  -- A deleted engagement stays as a tombstone: its version must never restart.
  deleted_at      timestamptz,
  PRIMARY KEY (user_id, video_id)
);

GRANT SELECT, INSERT, UPDATE ON video.engagements TO video_service;

-- +goose Down
DROP TABLE video.engagements;
