-- The meaning of each table, column and index, where an administrator looks for it: psql's \d+ shows these comments. They
-- change no row, and wait for no reader and no writer.

-- +goose Up
SET LOCAL lock_timeout = '1500ms';
COMMENT ON TABLE catalog.video_projection IS 'The read model of videos. Events of the owner make and change its rows, and the owner''s answers repair them. No row is deleted: a tombstone stays.';
COMMENT ON COLUMN catalog.video_projection.video_id IS 'The id of the video, and of its events'' aggregate.';
COMMENT ON COLUMN catalog.video_projection.uploader_id IS 'The uploader, a user. NULL in a tombstone.';
COMMENT ON COLUMN catalog.video_projection.title IS 'As at the owner. Empty in a tombstone.';
COMMENT ON COLUMN catalog.video_projection.description IS 'As at the owner. Empty in a tombstone.';
COMMENT ON COLUMN catalog.video_projection.duration_seconds IS 'As at the owner.';
COMMENT ON COLUMN catalog.video_projection.published_at IS 'As at the owner.';
COMMENT ON COLUMN catalog.video_projection.version IS 'The owner''s version that the row shows.';
COMMENT ON COLUMN catalog.video_projection.epoch IS 'The owner''s epoch of that version. The pair of both only grows, unless the owner has lost commits.';
COMMENT ON COLUMN catalog.video_projection.created_at IS 'The owner''s time of version 1. NULL if no event has told it.';
COMMENT ON COLUMN catalog.video_projection.updated_at IS 'The owner''s time of the version.';
COMMENT ON COLUMN catalog.video_projection.deleted_at IS 'The owner''s time of the deletion. Such a row is a tombstone: it stays, so that a late event of before the deletion finds a newer version.';
COMMENT ON COLUMN catalog.video_projection.applied_at IS 'The time at which this service wrote the row.';
COMMENT ON COLUMN catalog.video_projection.last_event_id IS 'The event of the version. If another event has that version, the owner has lost commits. NULL if unknown.';
COMMENT ON COLUMN catalog.video_projection.revision IS 'The revision of the build that wrote the row.';
COMMENT ON COLUMN catalog.video_projection.incomplete IS 'Whether the change had a part that the build did not know. A later build asks the owner for the row.';
COMMENT ON COLUMN catalog.video_projection.tenant_id IS 'The tenant. A request sees the rows of one tenant.';
COMMENT ON INDEX catalog.video_projection_of_tenant IS 'The list of a tenant, without tombstones.';
COMMENT ON INDEX catalog.video_projection_of_uploader IS 'The list of an uploader, without tombstones.';
COMMENT ON INDEX catalog.video_projection_incomplete IS 'The rows that a later build asks the owner for.';
COMMENT ON FUNCTION catalog.forget_last_event() IS 'Clears last_event_id if a release that does not know the column has changed the version.';
COMMENT ON TABLE catalog.reconcile_checks IS 'How far each check has come: of a projection against its owner, or of counters against what they count. An instance goes on with a check that another has begun. One row for each type.';
COMMENT ON COLUMN catalog.reconcile_checks.aggregate_type IS 'The aggregates of the projection, or the counters.';
COMMENT ON COLUMN catalog.reconcile_checks.next_id IS 'The id at which the check goes on. Empty between two checks.';
COMMENT ON COLUMN catalog.reconcile_checks.rows_checked IS 'The rows of the owner, or the counters, that this check has compared so far.';
COMMENT ON COLUMN catalog.reconcile_checks.started_at IS 'The time at which this check began.';
COMMENT ON COLUMN catalog.reconcile_checks.finished_at IS 'The time at which the last whole check ended.';
COMMENT ON COLUMN catalog.reconcile_checks.holder IS 'The instance that checks, until its lease ends.';
COMMENT ON COLUMN catalog.reconcile_checks.leased_until IS 'The end of that lease.';
COMMENT ON TABLE catalog.backfills IS 'How far the backfill of each projection has come. A process goes on with a backfill that another has begun. One row for each projection.';
COMMENT ON COLUMN catalog.backfills.aggregate_type IS 'The aggregates of the projection.';
COMMENT ON COLUMN catalog.backfills.next_id IS 'The id at which the next page begins. Empty at the first row, and after the end.';
COMMENT ON COLUMN catalog.backfills.rows_read IS 'The rows of the owner that were read since started_at.';
COMMENT ON COLUMN catalog.backfills.rows_written IS 'Those of them that have changed the projection.';
COMMENT ON COLUMN catalog.backfills.started_at IS 'The time at which the backfill began.';
COMMENT ON COLUMN catalog.backfills.finished_at IS 'The time at which it ended.';
COMMENT ON COLUMN catalog.backfills.holder IS 'The last process that worked.';
COMMENT ON COLUMN catalog.backfills.leased_until IS 'The end of its lease. Then another process may go on.';

-- +goose Down
-- The comments of a table end with it.
