-- The service's own role and schema. Roles belong to the whole cluster, so two
-- migrations of two databases may create this one at the same moment: the second finds
-- it there and goes on.

-- +goose Up
-- +goose StatementBegin
DO $$
BEGIN
  FOR attempt IN 1..20 LOOP
    BEGIN
      IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'catalog_service') THEN
        CREATE ROLE catalog_service LOGIN;
      END IF;
      IF NOT EXISTS (
        SELECT FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole
         WHERE r.rolname = 'catalog_service' AND s.setdatabase = 0
      ) THEN
        -- pkg/eventing names its tables without a schema: the search_path finds them.
        ALTER ROLE catalog_service SET search_path = catalog;
        -- Limits of last resort, in case a deadline of the service's own is missing.
        ALTER ROLE catalog_service SET statement_timeout = '15s';
        ALTER ROLE catalog_service SET lock_timeout = '10s';
        ALTER ROLE catalog_service SET idle_in_transaction_session_timeout = '15s';
      END IF;
      RETURN;
    EXCEPTION
      -- internal_error is "tuple concurrently updated" from the catalogue.
      WHEN duplicate_object OR unique_violation OR internal_error THEN
        PERFORM pg_sleep(random() * 0.05);
    END;
  END LOOP;
  RAISE EXCEPTION 'role catalog_service: still contended after 20 attempts';
END
$$;
-- +goose StatementEnd
GRANT USAGE ON SCHEMA catalog TO catalog_service;
-- Readiness compares this with the migrations that the binary carries.
GRANT SELECT ON catalog.goose_db_version TO catalog_service;

-- +goose Down
REVOKE ALL ON catalog.goose_db_version FROM catalog_service;
REVOKE ALL ON SCHEMA catalog FROM catalog_service;
