-- The id of the event that made the row's version. Each event names its predecessor: a
-- consumer that has another predecessor detects that the owner has lost commits, in a
-- failover or by a restore. NULL means unknown, for rows and events from before this
-- column. No default, so nothing is rewritten.

-- +goose Up
SET LOCAL lock_timeout = '2s';
ALTER TABLE video.videos ADD COLUMN last_event_id uuid;
ALTER TABLE video.engagements ADD COLUMN last_event_id uuid;

-- An older release moves a row to another version and leaves the column, which then has
-- the event of an earlier version: the trigger clears it. Other updates cost no more than
-- the trigger's condition. The condition needs no epoch: these tables have none, and each
-- change of a row is a new version, in any epoch.
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
