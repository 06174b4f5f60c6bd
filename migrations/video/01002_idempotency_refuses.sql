-- A write whose idempotency key has an answer must not commit. Since its COMMIT travels with
-- its last statements, the database has to stop it.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION idempotency_refuses() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the idempotency key has an answer' USING ERRCODE = 'LS005';
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION idempotency_refuses();
