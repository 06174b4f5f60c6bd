-- This shape keeps a claim's cost the same for any size of the table: see "Cost of a
-- claim" in pkg/eventing/outbox/queue.

-- +goose Up
-- Postgres compiles a statement with a high estimate, and a claim's estimate is high
-- when a million events are pending. Compilation takes 200 ms, for a claim of 5.
-- +goose StatementBegin
DO $$
DECLARE
  service text := current_setting('eventing.role');
BEGIN
  FOR attempt IN 1..20 LOOP
    BEGIN
      IF NOT EXISTS (
        SELECT FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole
         WHERE r.rolname = service AND s.setdatabase = 0 AND 'jit=off' = ANY(s.setconfig)
      ) THEN
        EXECUTE format('ALTER ROLE %I SET jit = off', service);
      END IF;
      RETURN;
    EXCEPTION
      -- "tuple concurrently updated": another database's migration, since roles
      -- belong to the cluster.
      WHEN internal_error THEN
        PERFORM pg_sleep(random() * 0.05);
    END;
  END LOOP;
  RAISE EXCEPTION 'role %: still contended after 20 attempts', service;
END
$$;
-- +goose StatementEnd
ALTER TABLE outbox
  -- The transaction that appended the event. A relay asks for the rows that were
  -- committed since its last snapshot. The default is one value for all existing rows,
  -- so this rewrites nothing.
  ADD COLUMN xact xid8 NOT NULL DEFAULT pg_current_xact_id(),
  -- The event that this one answers, for a service that consumes and emits.
  ADD COLUMN source_event_id uuid,
  -- Room on each page for the lease, which then touches no index.
  SET (fillfactor = 90);

-- New events. "version > 0" is always true: only a query with the same condition can
-- use this index. That keeps the planner from using it for other queries when its
-- statistics say that next to nothing is pending.
CREATE INDEX outbox_new ON outbox (xact) WHERE published_at IS NULL AND version > 0;
-- Pending events, by aggregate. In the order of bytes, not of a language: this is
-- cheaper, and again only a query with the same collation can use it.
CREATE INDEX outbox_pending_aggregates ON outbox
  (aggregate_type COLLATE "C", aggregate_id COLLATE "C", version) WHERE published_at IS NULL;
CREATE INDEX outbox_parked ON outbox (parked_at) WHERE parked_at IS NOT NULL;
-- One answer per aggregate to one event.
CREATE UNIQUE INDEX outbox_source_event ON outbox (source_event_id, aggregate_type, aggregate_id)
  WHERE source_event_id IS NOT NULL;

DROP INDEX outbox_pending;
DROP INDEX outbox_pending_by_aggregate;
DROP INDEX outbox_leased;

-- Published rows leave after a while.
-- +goose StatementBegin
DO $$ BEGIN EXECUTE format('GRANT DELETE ON outbox TO %I', current_setting('eventing.role')); END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DO $$ BEGIN EXECUTE format('REVOKE DELETE ON outbox FROM %I', current_setting('eventing.role')); END $$;
-- +goose StatementEnd
CREATE INDEX outbox_pending ON outbox (occurred_at, id) WHERE published_at IS NULL;
CREATE INDEX outbox_pending_by_aggregate ON outbox (aggregate_type, aggregate_id, version)
  WHERE published_at IS NULL;
CREATE INDEX outbox_leased ON outbox (lock_token) WHERE lock_token IS NOT NULL;
DROP INDEX outbox_source_event;
DROP INDEX outbox_parked;
DROP INDEX outbox_pending_aggregates;
DROP INDEX outbox_new;
ALTER TABLE outbox DROP COLUMN source_event_id, DROP COLUMN xact, RESET (fillfactor);
