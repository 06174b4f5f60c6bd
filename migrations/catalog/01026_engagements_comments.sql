-- As 01025. A fork without engagements has no such tables.

-- +goose Up
SET LOCAL lock_timeout = '1500ms';
-- +goose StatementBegin
DO $$
BEGIN
  IF to_regclass('catalog.video_user_engagements_projection') IS NULL THEN
    RETURN;
  END IF;
  COMMENT ON TABLE catalog.video_user_engagements_projection IS 'The read model of engagements. Events of the owner make and change its rows, and the owner''s answers repair them. No row is deleted: a tombstone stays.';
  COMMENT ON COLUMN catalog.video_user_engagements_projection.user_id IS 'The user.';
  COMMENT ON COLUMN catalog.video_user_engagements_projection.video_id IS 'The video. It may have no row yet.';
  COMMENT ON COLUMN catalog.video_user_engagements_projection.liked IS 'As at the owner. False in a tombstone.';
  COMMENT ON COLUMN catalog.video_user_engagements_projection.bookmarked IS 'As at the owner. False in a tombstone.';
  COMMENT ON COLUMN catalog.video_user_engagements_projection.watched_seconds IS 'As at the owner. 0 in a tombstone.';
  COMMENT ON COLUMN catalog.video_user_engagements_projection.version IS 'The owner''s version that the row shows.';
  COMMENT ON COLUMN catalog.video_user_engagements_projection.epoch IS 'The owner''s epoch of that version. The pair of both only grows, unless the owner has lost commits.';
  COMMENT ON COLUMN catalog.video_user_engagements_projection.created_at IS 'As at the owner. NULL if no event has told it.';
  COMMENT ON COLUMN catalog.video_user_engagements_projection.updated_at IS 'The owner''s time of the version.';
  COMMENT ON COLUMN catalog.video_user_engagements_projection.deleted_at IS 'The owner''s time of the deletion. Such a row is a tombstone: it stays, so that a late event finds a newer version.';
  COMMENT ON COLUMN catalog.video_user_engagements_projection.applied_at IS 'The time at which this service wrote the row.';
  COMMENT ON COLUMN catalog.video_user_engagements_projection.last_event_id IS 'The event of the version. If another event has that version, the owner has lost commits. NULL if unknown.';
  COMMENT ON COLUMN catalog.video_user_engagements_projection.revision IS 'The revision of the build that wrote the row.';
  COMMENT ON COLUMN catalog.video_user_engagements_projection.incomplete IS 'Whether the change had a part that the build did not know. A later build asks the owner for the row.';
  COMMENT ON COLUMN catalog.video_user_engagements_projection.tenant_id IS 'The tenant of the video.';
  COMMENT ON INDEX catalog.video_user_engagements_incomplete IS 'The rows that a later build asks the owner for.';
  COMMENT ON INDEX catalog.video_user_engagements_by_video IS 'The engagements of a video, for a recount of its counters.';
  COMMENT ON TABLE catalog.video_counters IS 'The sums over the engagements of each video. Triggers of that table change them, in the statement that changes an engagement. Up to four rows for each video.';
  COMMENT ON COLUMN catalog.video_counters.video_id IS 'The video. A counter of it is the sum over its rows.';
  COMMENT ON COLUMN catalog.video_counters.operation IS 'The operation that has counted. Each has its own row, so that two batches do not deadlock.';
  COMMENT ON COLUMN catalog.video_counters.likes IS 'The likes, as this operation has changed them.';
  COMMENT ON COLUMN catalog.video_counters.bookmarks IS 'The bookmarks, as this operation has changed them.';
  COMMENT ON COLUMN catalog.video_counters.watched_seconds IS 'The seconds, as this operation has changed them.';
  COMMENT ON COLUMN catalog.video_counters.tenant_id IS 'The tenant of the video.';
  COMMENT ON VIEW catalog.video_counter_drift IS 'The difference between the counters of a video and its engagements, where there is one. It reads all engagements.';
  COMMENT ON FUNCTION catalog.count_engagements() IS 'Adds the difference that a statement makes to the counters.';
  COMMENT ON FUNCTION catalog.tenant_of_counters(uuid) IS 'The tenant of a video''s engagements, or else that of its counters.';
  COMMENT ON FUNCTION catalog.recount_videos() IS 'Adds the drift of all videos to their counters. Returns how many rows were wrong.';
  COMMENT ON FUNCTION catalog.recount_videos(uuid[]) IS 'Adds the drift of these videos to their counters, and returns it.';
  COMMENT ON TABLE catalog.engagement_offsets IS 'The checkpoints of the consumer of engagements. The broker''s acknowledgements decide about delivery, and not this table. The consumer deletes the row of an instance that is gone for long.';
  COMMENT ON COLUMN catalog.engagement_offsets.consumer_group IS 'The group of the consumer.';
  COMMENT ON COLUMN catalog.engagement_offsets.instance IS 'The instance that saves. Each has its own row, so that none waits for another''s commit. The last reset and each start with a seek have a row, too.';
  COMMENT ON COLUMN catalog.engagement_offsets.source IS 'save: an instance''s position. reset: the last reset. start: a deployment that began with a seek.';
  COMMENT ON COLUMN catalog.engagement_offsets.subscription IS 'The subscription.';
  COMMENT ON COLUMN catalog.engagement_offsets.message_id IS 'The broker''s id of the message of the position.';
  COMMENT ON COLUMN catalog.engagement_offsets.publish_time IS 'The position: the greatest publish time of the messages that the instance has committed. It only moves forward.';
  COMMENT ON COLUMN catalog.engagement_offsets.lag_millis IS 'The age of the last batch''s newest message at its commit.';
  COMMENT ON COLUMN catalog.engagement_offsets.updated_at IS 'The time of the save.';
  COMMENT ON COLUMN catalog.engagement_offsets.updated_by IS 'The revision or host of the instance, or the operator of a reset.';
  COMMENT ON VIEW catalog.engagement_offsets_by_group IS 'The position of each group. A replay from safe_position loses nothing.';
END
$$;
-- +goose StatementEnd

-- +goose Down
-- The comments of a table end with it.
