-- The id of the event that made the row's version. If another event has that version, or
-- if the next event names another predecessor, the owner has lost commits. NULL means
-- unknown, for rows from before this column. No default, so nothing is rewritten.

-- +goose Up
SET LOCAL lock_timeout = '2s';
ALTER TABLE catalog.video_projection ADD COLUMN last_event_id uuid;
ALTER TABLE catalog.video_user_engagements_projection ADD COLUMN last_event_id uuid;

-- An older release moves a row to another version and leaves the column, which then has
-- the event of an earlier version: the trigger clears it. Other updates cost no more than
-- the trigger's condition.
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
