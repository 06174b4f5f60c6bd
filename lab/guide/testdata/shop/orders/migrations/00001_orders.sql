-- +goose Up
CREATE TABLE orders (
  id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  customer   text        NOT NULL,
  item       text        NOT NULL,
  quantity   int         NOT NULL CHECK (quantity > 0),
  updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE stock (item text PRIMARY KEY, taken bigint NOT NULL);
GRANT SELECT, INSERT, UPDATE ON orders, stock TO orders_app;

-- +goose Down
DROP TABLE stock;
DROP TABLE orders;
