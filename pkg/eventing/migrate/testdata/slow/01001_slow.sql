-- +goose Up
SELECT pg_sleep(600);

-- +goose Down
SELECT 1;
