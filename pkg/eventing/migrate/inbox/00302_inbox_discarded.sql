-- An operator decided against a dead letter: it needs no further attention. If the
-- event is delivered again, it is tried like any other.

-- +goose Up
ALTER TABLE inbox
  DROP CONSTRAINT inbox_status_check,
  ADD CONSTRAINT inbox_status_check CHECK (status IN ('done', 'held', 'dead', 'discarded'));

-- +goose Down
UPDATE inbox SET status = 'dead' WHERE status = 'discarded';
ALTER TABLE inbox
  DROP CONSTRAINT inbox_status_check,
  ADD CONSTRAINT inbox_status_check CHECK (status IN ('done', 'held', 'dead'));
