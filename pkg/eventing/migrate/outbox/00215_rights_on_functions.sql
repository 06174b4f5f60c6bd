-- The right to call the functions of Append. Usually PUBLIC may call each new function. In a database whose default
-- privileges take this right away, Append would fail, because Postgres checks the right before it knows whether a
-- statement calls the function.

-- +goose Up
SET LOCAL lock_timeout = '1500ms';
-- +goose StatementBegin
DO $$
DECLARE
  caller text;
BEGIN
  -- A schema without tenants has no request role.
  FOREACH caller IN ARRAY ARRAY[current_setting('eventing.role'), current_setting('eventing.request_role')] LOOP
    CONTINUE WHEN caller = '';
    EXECUTE format('GRANT EXECUTE ON FUNCTION outbox_refuses(text, text, bigint, bigint),
                    outbox_refuses_epoch(bigint, bigint) TO %I', caller);
  END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose Down
-- The rights stay. They end with the functions.
