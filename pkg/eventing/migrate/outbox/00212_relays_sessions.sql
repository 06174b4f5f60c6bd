-- The session in which a relay wrote its row last, and the life of the server at that moment. If the session
-- has ended, and the relay does not write its row again, its process has ended.

-- +goose Up
SET LOCAL lock_timeout = '1500ms';
ALTER TABLE outbox_relays ADD COLUMN IF NOT EXISTS session int, ADD COLUMN IF NOT EXISTS server timestamptz;

-- +goose Down
SET LOCAL lock_timeout = '1500ms';
ALTER TABLE outbox_relays DROP COLUMN server, DROP COLUMN session;
