-- An older release moves a row to another epoch and leaves last_event_id, which then has
-- an event of the epoch before. The version may be the same: after a restore, epoch 2
-- begins with a version that epoch 1 has had.

-- +goose Up
SET LOCAL lock_timeout = '2s';
CREATE OR REPLACE TRIGGER forget_last_event BEFORE UPDATE ON catalog.video_projection
  FOR EACH ROW WHEN ((NEW.epoch, NEW.version) <> (OLD.epoch, OLD.version) AND NEW.last_event_id = OLD.last_event_id)
  EXECUTE FUNCTION catalog.forget_last_event();
CREATE OR REPLACE TRIGGER forget_last_event BEFORE UPDATE ON catalog.video_user_engagements_projection
  FOR EACH ROW WHEN ((NEW.epoch, NEW.version) <> (OLD.epoch, OLD.version) AND NEW.last_event_id = OLD.last_event_id)
  EXECUTE FUNCTION catalog.forget_last_event();

-- +goose Down
CREATE OR REPLACE TRIGGER forget_last_event BEFORE UPDATE ON catalog.video_projection
  FOR EACH ROW WHEN (NEW.version <> OLD.version AND NEW.last_event_id = OLD.last_event_id)
  EXECUTE FUNCTION catalog.forget_last_event();
CREATE OR REPLACE TRIGGER forget_last_event BEFORE UPDATE ON catalog.video_user_engagements_projection
  FOR EACH ROW WHEN (NEW.version <> OLD.version AND NEW.last_event_id = OLD.last_event_id)
  EXECUTE FUNCTION catalog.forget_last_event();
