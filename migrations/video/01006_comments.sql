-- The meaning of each table, column and index, where an administrator looks for it: psql's \d+ shows these comments. They
-- change no row, and wait for no reader and no writer.

-- +goose Up
SET LOCAL lock_timeout = '1500ms';
COMMENT ON TABLE video.videos IS 'The videos. Each change of a row is a new version, and an event of the outbox tells of it. No row is deleted: a tombstone stays.';
COMMENT ON COLUMN video.videos.video_id IS 'The id of the video, and of its events'' aggregate.';
COMMENT ON COLUMN video.videos.uploader_id IS 'The uploader, a user. It stays in a tombstone, so that an erasure finds the row.';
COMMENT ON COLUMN video.videos.title IS 'Empty in a tombstone.';
COMMENT ON COLUMN video.videos.description IS 'Empty in a tombstone.';
COMMENT ON COLUMN video.videos.duration_seconds IS 'The length of the video.';
COMMENT ON COLUMN video.videos.published_at IS 'The time from which the video is public, by its owner. NULL if it is not.';
COMMENT ON COLUMN video.videos.version IS 'The version of the row, from 1 on. It is assigned under the lock of the row, and orders the events.';
COMMENT ON COLUMN video.videos.created_at IS 'The time of version 1.';
COMMENT ON COLUMN video.videos.updated_at IS 'The time of the present version.';
COMMENT ON COLUMN video.videos.deleted_at IS 'The time of the deletion. Such a row is a tombstone: it stays, because a version must never be used twice.';
COMMENT ON COLUMN video.videos.last_event_id IS 'The event of the present version. NULL if unknown.';
COMMENT ON COLUMN video.videos.tenant_id IS 'The tenant. A request sees the rows of one tenant.';
COMMENT ON INDEX video.videos_of_tenant IS 'The list of a tenant, without tombstones.';
COMMENT ON INDEX video.videos_of_uploader IS 'The list of an uploader, without tombstones.';
COMMENT ON INDEX video.videos_deleted_of_uploader IS 'The tombstones of an uploader, for an erasure.';
COMMENT ON FUNCTION video.forget_last_event() IS 'Clears last_event_id if a release that does not know the column has changed the version.';
COMMENT ON TABLE video.idempotency_keys IS 'The stored answers of writes with an Idempotency-Key, written in the transactions of these writes. The service deletes a row after 24 hours.';
COMMENT ON COLUMN video.idempotency_keys.principal IS 'The caller. Each caller has its own keys.';
COMMENT ON COLUMN video.idempotency_keys.operation IS 'The method and the path, the same for REST and gRPC.';
COMMENT ON COLUMN video.idempotency_keys.key IS 'The key that the caller sent.';
COMMENT ON COLUMN video.idempotency_keys.request_hash IS 'A hash of the request''s fields. The same key with another request is refused.';
COMMENT ON COLUMN video.idempotency_keys.response IS 'The answer, which a repetition of the request gets.';
COMMENT ON COLUMN video.idempotency_keys.created_at IS 'The time of the write.';
COMMENT ON COLUMN video.idempotency_keys.tenant_id IS 'The tenant of the caller.';
COMMENT ON INDEX video.idempotency_keys_by_age IS 'The service deletes expired rows by it.';
COMMENT ON FUNCTION video.idempotency_refuses() IS 'Stops a transaction if its key has an answer already. SQLSTATE LS005.';

-- +goose Down
-- The comments of a table end with it.
