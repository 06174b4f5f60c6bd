-- +goose Up
CREATE TABLE other_orders (id text PRIMARY KEY);

-- +goose Down
DROP TABLE other_orders;
