-- The service's own role and schema. Roles belong to the whole cluster, so two
-- migrations of two databases may create this one at the same moment: the second finds
-- it there and goes on.

-- +goose Up
-- +goose StatementBegin
DO $$
DECLARE
  service text := current_setting('eventing.role');
BEGIN
  FOR attempt IN 1..20 LOOP
    BEGIN
      IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = service) THEN
        EXECUTE format('CREATE ROLE %I LOGIN', service);
      END IF;
      IF NOT EXISTS (
        SELECT FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole
         WHERE r.rolname = service AND s.setdatabase = 0
      ) THEN
        -- pkg/eventing names its tables without a schema: the search_path finds them.
        EXECUTE format('ALTER ROLE %I SET search_path = %I', service, current_schema());
        -- Limits of last resort, in case a deadline of the service's own is missing.
        EXECUTE format('ALTER ROLE %I SET statement_timeout = %L', service, '15s');
        EXECUTE format('ALTER ROLE %I SET lock_timeout = %L', service, '10s');
        EXECUTE format('ALTER ROLE %I SET idle_in_transaction_session_timeout = %L', service, '15s');
      END IF;
      RETURN;
    EXCEPTION
      -- internal_error is "tuple concurrently updated" from a system table.
      WHEN duplicate_object OR unique_violation OR internal_error THEN
        PERFORM pg_sleep(random() * 0.05);
    END;
  END LOOP;
  RAISE EXCEPTION 'role %: still contended after 20 attempts', service;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
DO $$ BEGIN EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), current_setting('eventing.role')); END $$;
-- +goose StatementEnd
-- Readiness compares this with the migrations that the binary carries.
-- +goose StatementBegin
DO $$ BEGIN EXECUTE format('GRANT SELECT ON goose_db_version TO %I', current_setting('eventing.role')); END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DO $$ BEGIN EXECUTE format('REVOKE ALL ON goose_db_version FROM %I', current_setting('eventing.role')); END $$;
-- +goose StatementEnd
-- +goose StatementBegin
DO $$ BEGIN EXECUTE format('REVOKE ALL ON SCHEMA %I FROM %I', current_schema(), current_setting('eventing.role')); END $$;
-- +goose StatementEnd
