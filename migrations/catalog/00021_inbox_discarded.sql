-- An operator decided against a dead letter: it asks for nobody's attention any
-- more. Should the event be delivered again, it is tried like any other.

-- +goose Up
ALTER TABLE catalog.inbox
  DROP CONSTRAINT inbox_status_check,
  ADD CONSTRAINT inbox_status_check CHECK (status IN ('done', 'held', 'dead', 'discarded'));

-- +goose Down
UPDATE catalog.inbox SET status = 'dead' WHERE status = 'discarded';
ALTER TABLE catalog.inbox
  DROP CONSTRAINT inbox_status_check,
  ADD CONSTRAINT inbox_status_check CHECK (status IN ('done', 'held', 'dead'));
