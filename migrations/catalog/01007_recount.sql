-- The counters of some videos, compared with their engagements and recounted.

-- +goose NO TRANSACTION
-- +goose Up
-- A check counts the engagements of a few videos at a time. Without this index each part of
-- it would read all engagements. A change of an engagement does not write the index: it
-- changes none of its columns. It costs an entry for each new engagement.
-- An index that was started and not finished is invalid and blocks the name.
DROP INDEX CONCURRENTLY IF EXISTS catalog.video_user_engagements_by_video;
CREATE INDEX CONCURRENTLY video_user_engagements_by_video ON catalog.video_user_engagements_projection (video_id);

-- recount_videos adds the drift of these videos to their counters, and returns it for those
-- that had one. It is recount_videos() for some of the videos, and excludes it.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION catalog.recount_videos(videos uuid[]) RETURNS TABLE (recounted uuid, added json) LANGUAGE plpgsql AS $$
BEGIN
  -- Two recounts at once would add one drift twice. The next statement has a new snapshot.
  PERFORM pg_advisory_xact_lock(hashtext('lockstep recount videos'));
  RETURN QUERY
  WITH drift AS MATERIALIZED (
    SELECT d.video_id, d.likes, d.bookmarks, d.watched_seconds FROM catalog.video_counter_drift AS d WHERE d.video_id = ANY (videos)
  ), counted AS (
    INSERT INTO catalog.video_counters AS c (video_id, operation, likes, bookmarks, watched_seconds)
    SELECT d.video_id, 'RECOUNT', d.likes, d.bookmarks, d.watched_seconds FROM drift AS d
    ON CONFLICT (video_id, operation) DO UPDATE SET likes = c.likes + excluded.likes,
       bookmarks = c.bookmarks + excluded.bookmarks, watched_seconds = c.watched_seconds + excluded.watched_seconds
  )
  SELECT d.video_id, json_build_object('likes', d.likes, 'bookmarks', d.bookmarks, 'watched_seconds', d.watched_seconds) FROM drift AS d;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION catalog.recount_videos(uuid[]);
DROP INDEX CONCURRENTLY IF EXISTS catalog.video_user_engagements_by_video;
