-- Which event made the version of a row. Another event of that version, or one that
-- follows another event, is of another history than the row: the owner has lost
-- commits. NULL is unknown: rows of before. No default, so nothing is rewritten.

-- +goose Up
SET LOCAL lock_timeout = '2s';
ALTER TABLE catalog.video_projection ADD COLUMN last_event_id uuid;
ALTER TABLE catalog.video_user_engagements_projection ADD COLUMN last_event_id uuid;

-- A release that does not know the column moves a row on and leaves it: that is then
-- the event of an earlier version. The condition is all that other updates cost.
-- +goose StatementBegin
CREATE FUNCTION catalog.forget_last_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.last_event_id := NULL;
  RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER forget_last_event BEFORE UPDATE ON catalog.video_projection
  FOR EACH ROW WHEN (NEW.version <> OLD.version AND NEW.last_event_id = OLD.last_event_id)
  EXECUTE FUNCTION catalog.forget_last_event();
CREATE TRIGGER forget_last_event BEFORE UPDATE ON catalog.video_user_engagements_projection
  FOR EACH ROW WHEN (NEW.version <> OLD.version AND NEW.last_event_id = OLD.last_event_id)
  EXECUTE FUNCTION catalog.forget_last_event();

-- +goose Down
DROP TRIGGER forget_last_event ON catalog.video_projection;
DROP TRIGGER forget_last_event ON catalog.video_user_engagements_projection;
DROP FUNCTION catalog.forget_last_event();
ALTER TABLE catalog.video_user_engagements_projection DROP COLUMN last_event_id;
ALTER TABLE catalog.video_projection DROP COLUMN last_event_id;
