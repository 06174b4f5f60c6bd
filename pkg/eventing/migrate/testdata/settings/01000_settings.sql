-- The settings with which migrations run.
-- +goose Up
CREATE TABLE settings AS SELECT name, setting FROM pg_settings;

-- +goose Down
DROP TABLE settings;
