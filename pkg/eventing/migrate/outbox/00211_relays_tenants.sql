-- The tenants that a relay met last: one relay may meet the busy tenant only, and another
-- one the tenant that waits for it.

-- +goose Up
SET LOCAL lock_timeout = '2s';
ALTER TABLE outbox_relays ADD COLUMN IF NOT EXISTS tenants text[];

-- +goose Down
SET LOCAL lock_timeout = '2s';
ALTER TABLE outbox_relays DROP COLUMN tenants;
