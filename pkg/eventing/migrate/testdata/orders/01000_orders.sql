-- +goose Up
CREATE TABLE orders (id text PRIMARY KEY, version bigint NOT NULL);
-- +goose StatementBegin
DO $$ BEGIN EXECUTE format('GRANT SELECT, INSERT, UPDATE ON orders TO %I', current_setting('eventing.role')); END $$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE orders;
