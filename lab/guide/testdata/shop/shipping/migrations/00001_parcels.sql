-- +goose Up
CREATE TABLE parcels (
  order_id  bigint      PRIMARY KEY,
  item      text        NOT NULL,
  quantity  int         NOT NULL,
  packed_at timestamptz
);
CREATE TABLE labels (
  number   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  order_id bigint NOT NULL REFERENCES parcels,
  quantity int    NOT NULL
);
GRANT SELECT, INSERT, UPDATE ON parcels TO shipping_app;
GRANT SELECT, INSERT ON labels TO shipping_app;

-- +goose Down
DROP TABLE labels;
DROP TABLE parcels;
