-- +goose Up
CREATE TABLE invoices (id text PRIMARY KEY);

-- +goose Down
DROP TABLE invoices;
