-- Requests append events of their own tenant, and read no others. An empty tenant is the
-- default one, in events of before tenants.

-- +goose Up
-- +goose StatementBegin
DO $$
DECLARE
  request text := current_setting('eventing.request_role');
BEGIN
  IF request = '' THEN
    RETURN;
  END IF;
  SET LOCAL lock_timeout = '2s';
  PERFORM confine_to_tenant('outbox', $e$CASE tenant_id WHEN '' THEN 'default' ELSE tenant_id END$e$);
  EXECUTE format('GRANT SELECT, INSERT ON outbox TO %I', request);
  EXECUTE format('GRANT SELECT ON outbox_epochs TO %I', request);
END
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DO $$
DECLARE
  request text := current_setting('eventing.request_role');
BEGIN
  IF request = '' THEN
    RETURN;
  END IF;
  EXECUTE format('REVOKE ALL ON outbox, outbox_epochs FROM %I', request);
  DROP POLICY owner ON outbox;
  DROP POLICY every_tenant ON outbox;
  DROP POLICY one_tenant ON outbox;
  ALTER TABLE outbox NO FORCE ROW LEVEL SECURITY;
  ALTER TABLE outbox DISABLE ROW LEVEL SECURITY;
END
$$;
-- +goose StatementEnd
