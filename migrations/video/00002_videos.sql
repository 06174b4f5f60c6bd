-- +goose Up
CREATE TABLE video.videos (
  video_id         uuid        PRIMARY KEY,
  uploader_id      uuid        NOT NULL,
  title            text        NOT NULL,
  description      text        NOT NULL DEFAULT '',
  duration_seconds bigint      NOT NULL DEFAULT 0 CHECK (duration_seconds >= 0),
  published_at     timestamptz,
  -- Assigned under this row's lock, which makes it the order of the events.
  version          bigint      NOT NULL CHECK (version > 0),
  created_at       timestamptz NOT NULL,
  updated_at       timestamptz NOT NULL,
  -- A deleted video stays as a tombstone: its version must never restart.
  deleted_at       timestamptz
);
CREATE INDEX videos_by_uploader ON video.videos (uploader_id, video_id);

-- One row per write that carried an Idempotency-Key, for 24 hours.
CREATE TABLE video.idempotency_keys (
  principal    text        NOT NULL,
  operation    text        NOT NULL,
  key          text        NOT NULL,
  request_hash bytea       NOT NULL,
  response     bytea       NOT NULL,
  created_at   timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (principal, operation, key)
);
CREATE INDEX idempotency_keys_by_age ON video.idempotency_keys (created_at);

GRANT SELECT, INSERT, UPDATE ON video.videos TO video_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON video.idempotency_keys TO video_service;

-- +goose Down
DROP TABLE video.idempotency_keys;
DROP TABLE video.videos;
