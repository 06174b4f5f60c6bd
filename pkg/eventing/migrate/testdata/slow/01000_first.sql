-- +goose Up
CREATE TABLE first (id text PRIMARY KEY);

-- +goose Down
DROP TABLE first;
