-- As 01006. A fork without engagements has no such table.

-- +goose Up
SET LOCAL lock_timeout = '1500ms';
-- +goose StatementBegin
DO $$
BEGIN
  IF to_regclass('video.engagements') IS NULL THEN
    RETURN;
  END IF;
  COMMENT ON TABLE video.engagements IS 'A user''s like, bookmark and progress of a video. Each change of a row is a new version, and an event of the outbox tells of it. No row is deleted: a tombstone stays.';
  COMMENT ON COLUMN video.engagements.user_id IS 'The user.';
  COMMENT ON COLUMN video.engagements.video_id IS 'The video. Without a foreign key: its check would lock a popular video for each like.';
  COMMENT ON COLUMN video.engagements.version IS 'The version of the row, from 1 on. It goes on when an engagement is put again after its deletion.';
  COMMENT ON COLUMN video.engagements.liked IS 'False in a tombstone.';
  COMMENT ON COLUMN video.engagements.bookmarked IS 'False in a tombstone.';
  COMMENT ON COLUMN video.engagements.watched_seconds IS 'How far the user has watched. 0 in a tombstone.';
  COMMENT ON COLUMN video.engagements.created_at IS 'The time of the first version, or of the first one after a deletion.';
  COMMENT ON COLUMN video.engagements.updated_at IS 'The time of the present version.';
  COMMENT ON COLUMN video.engagements.deleted_at IS 'The time of the deletion. Such a row is a tombstone: it stays, because a version must never be used twice.';
  COMMENT ON COLUMN video.engagements.last_event_id IS 'The event of the present version. NULL if unknown.';
  COMMENT ON COLUMN video.engagements.tenant_id IS 'The tenant of the video.';
END
$$;
-- +goose StatementEnd

-- +goose Down
-- The comments of a table end with it.
