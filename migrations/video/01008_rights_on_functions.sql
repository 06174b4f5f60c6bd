-- The right to call the function, also in a database whose default privileges let PUBLIC call no new function.

-- +goose Up
SET LOCAL lock_timeout = '1500ms';
-- +goose StatementBegin
DO $$
BEGIN
  EXECUTE format('GRANT EXECUTE ON FUNCTION video.idempotency_refuses() TO %I, %I',
                 current_setting('eventing.role'), current_setting('eventing.request_role'));
END
$$;
-- +goose StatementEnd

-- +goose Down
-- The right stays. It ends with the function.
