-- Which event made the version of a row. An event names the one before it, so that
-- a consumer with another one there knows that its history is not the owner's: the
-- owner has lost commits, in a failover or by a restore. NULL is unknown: rows and
-- events of before. No default, so nothing is rewritten.

-- +goose Up
SET LOCAL lock_timeout = '2s';
ALTER TABLE video.videos ADD COLUMN last_event_id uuid;
ALTER TABLE video.engagements ADD COLUMN last_event_id uuid;

-- A release that does not know the column moves a row on and leaves it: that is then
-- the event of an earlier version. The condition is all that other updates cost. It
-- does not look at an epoch, since these tables have none: the epoch is the whole
-- owner's, and each change of a row is a new version of it, in whichever epoch.
-- +goose StatementBegin
CREATE FUNCTION video.forget_last_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.last_event_id := NULL;
  RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER forget_last_event BEFORE UPDATE ON video.videos
  FOR EACH ROW WHEN (NEW.version <> OLD.version AND NEW.last_event_id = OLD.last_event_id)
  EXECUTE FUNCTION video.forget_last_event();
CREATE TRIGGER forget_last_event BEFORE UPDATE ON video.engagements
  FOR EACH ROW WHEN (NEW.version <> OLD.version AND NEW.last_event_id = OLD.last_event_id)
  EXECUTE FUNCTION video.forget_last_event();

-- +goose Down
DROP TRIGGER forget_last_event ON video.videos;
DROP TRIGGER forget_last_event ON video.engagements;
DROP FUNCTION video.forget_last_event();
ALTER TABLE video.engagements DROP COLUMN last_event_id;
ALTER TABLE video.videos DROP COLUMN last_event_id;
