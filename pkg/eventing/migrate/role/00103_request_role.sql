-- The role that requests run as, in a schema whose rows belong to tenants; see
-- pkg/eventing/tenant. It cannot log in: the service's role becomes it for a transaction.
-- A schema without one gets nothing here.

-- +goose Up
-- +goose StatementBegin
DO $$
DECLARE
  service text := current_setting('eventing.role');
  request text := current_setting('eventing.request_role');
BEGIN
  IF request = '' THEN
    RETURN;
  END IF;
  FOR attempt IN 1..20 LOOP
    BEGIN
      IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = request) THEN
        EXECUTE format('CREATE ROLE %I NOLOGIN', request);
      END IF;
      IF NOT EXISTS (
        SELECT FROM pg_auth_members WHERE roleid = request::regrole AND member = service::regrole
      ) THEN
        EXECUTE format('GRANT %I TO %I', request, service);
      END IF;
      EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), request);
      RETURN;
    EXCEPTION
      -- internal_error is "tuple concurrently updated" from a system table.
      WHEN duplicate_object OR unique_violation OR internal_error THEN
        PERFORM pg_sleep(random() * 0.05);
    END;
  END LOOP;
  RAISE EXCEPTION 'role %: still contended after 20 attempts', request;
END
$$;
-- +goose StatementEnd

-- confine_to_tenant lets the request role see and write one tenant's rows of a table, and the
-- service's role the rows of all. tenant is the SQL expression of a row's tenant. The
-- setting is read once for a statement, as the subquery that it is in.
-- +goose StatementBegin
CREATE FUNCTION confine_to_tenant(confined regclass, tenant text DEFAULT 'tenant_id') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', confined);
  -- Without FORCE the table's owner would be exempt.
  EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', confined);
  EXECUTE format('CREATE POLICY one_tenant ON %s TO %I USING (%s = (SELECT current_setting(''eventing.tenant'', true)))',
                 confined, current_setting('eventing.request_role'), tenant);
  EXECUTE format('CREATE POLICY every_tenant ON %s TO %I USING (true)', confined, current_setting('eventing.role'));
  -- The owner's migrations change the rows of all tenants, its views read them, and so do its
  -- dumps, which would be empty without an error.
  EXECUTE format('CREATE POLICY owner ON %s TO %I USING (true)', confined, current_user);
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION confine_to_tenant(regclass, text) FROM PUBLIC;

-- +goose Down
DROP FUNCTION confine_to_tenant(regclass, text);
-- +goose StatementBegin
DO $$
DECLARE
  request text := current_setting('eventing.request_role');
BEGIN
  IF request <> '' THEN
    EXECUTE format('REVOKE ALL ON SCHEMA %I FROM %I', current_schema(), request);
  END IF;
END
$$;
-- +goose StatementEnd
