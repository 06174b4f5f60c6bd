-- +goose NO TRANSACTION
-- The outbox with three B-trees instead of four, none of which a mark touches, and
-- the relays' own rows: see "The shape of the table" in pkg/eventing/outbox/queue.
--
-- Writers go on during it. Indexes are built CONCURRENTLY, which waits for other
-- transactions and blocks none. Statements that need the table for themselves wait for
-- it no longer than 300 ms, since all others queue behind them, and try again. Each
-- statement may run twice: a migration that was interrupted begins again.
--
-- Relays of the version before find pending events by the indexes that are dropped
-- here: from here on until they are replaced they may find nothing. Events wait.

-- +goose Up
CREATE TABLE IF NOT EXISTS outbox_relays (
  token   text        PRIMARY KEY,
  -- Events that became visible after this snapshot may be unfinished in this relay.
  low     pg_snapshot NOT NULL,
  -- '-infinity' once the relay has ended by itself.
  seen_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
-- +goose StatementBegin
DO $$ BEGIN EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_relays TO %I', current_setting('eventing.role')); END $$;
-- +goose StatementEnd

-- The first relay begins at the oldest event that is pending now, not at the
-- beginning of a large table; or at the oldest open transaction, which may still add
-- events.
INSERT INTO outbox_relays (token, low, seen_at)
SELECT 'migration', coalesce(
         (SELECT format('%1$s:%1$s:', least(xact, pg_snapshot_xmin(pg_current_snapshot())))
            FROM outbox WHERE published_at IS NULL AND version > 0 ORDER BY xact LIMIT 1)::pg_snapshot,
         pg_current_snapshot()), '-infinity'
    ON CONFLICT DO NOTHING;

-- A parked event waits for a person, not for a time.
UPDATE outbox SET next_retry_at = NULL WHERE parked_at IS NOT NULL AND next_retry_at IS NOT NULL;

DROP INDEX CONCURRENTLY IF EXISTS outbox_by_xact;
-- uuid_send is the id's bytes. An index with the plain id would also serve lookups of an
-- id, and a planner that takes the table for empty would not prefer the primary key.
CREATE INDEX CONCURRENTLY outbox_by_xact ON outbox (xact, uuid_send(id));
DROP INDEX CONCURRENTLY IF EXISTS outbox_retry;
CREATE INDEX CONCURRENTLY outbox_retry ON outbox (next_retry_at) WHERE next_retry_at IS NOT NULL;

-- +goose StatementBegin
DO $$
BEGIN
  FOR attempt IN 1..200 LOOP
    BEGIN
      SET LOCAL lock_timeout = '300ms';
      ALTER TABLE outbox
        -- Whether the events of an aggregate follow each other from here on: rows from
        -- before may have been purged up to the newest one.
        ADD COLUMN IF NOT EXISTS gapless boolean NOT NULL DEFAULT false,
        ALTER COLUMN gapless SET DEFAULT true,
        -- Postgres parses each CHECK again for each INSERT: a tenth of an event's cost.
        DROP CONSTRAINT IF EXISTS outbox_version_check,
        DROP CONSTRAINT IF EXISTS outbox_check,
        DROP CONSTRAINT IF EXISTS outbox_check1,
        -- Room for a lease and a mark next to the row, in its page and in no index.
        SET (
          fillfactor = 50,
          vacuum_truncate = off,
          -- The same for each size of the table: a share of 600 million rows is too many.
          autovacuum_vacuum_scale_factor = 0,
          autovacuum_vacuum_threshold = 50000,
          autovacuum_vacuum_insert_scale_factor = 0,
          autovacuum_vacuum_insert_threshold = 200000,
          autovacuum_analyze_scale_factor = 0,
          autovacuum_analyze_threshold = 200000
        );
      RETURN;
    EXCEPTION WHEN lock_not_available THEN
      PERFORM pg_sleep(0.05 + random() * 0.2);
    END;
  END LOOP;
  RAISE EXCEPTION 'outbox: no moment of 300 ms without a transaction in its way, in 200 attempts';
END
$$;
-- +goose StatementEnd
DROP INDEX CONCURRENTLY IF EXISTS outbox_new;
DROP INDEX CONCURRENTLY IF EXISTS outbox_pending_aggregates;

-- Append looks up the newest version of an aggregate, and calls this if the next one
-- does not follow it.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION outbox_refuses(kind text, aggregate text, next bigint, newest bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  IF newest >= next THEN
    RAISE EXCEPTION 'version % of % %: the outbox is at version %', next, kind, aggregate, newest
      USING ERRCODE = 'unique_violation', TABLE = 'outbox', CONSTRAINT = 'outbox_aggregate_type_aggregate_id_version_key';
  END IF;
  RAISE EXCEPTION 'version % of % %: the outbox is at version %', next, kind, aggregate, newest USING ERRCODE = 'LS002';
END
$$;
-- +goose StatementEnd

-- Append's statement is planned once for each session, maybe while the table has next to
-- no rows. The planner prefers an index to reading a file of 64 pages, even an empty one.
-- So rows that are rolled back extend the file, and vacuum does not truncate it.
-- +goose StatementBegin
DO $$
BEGIN
  IF pg_relation_size('outbox') < 64 * 8192 THEN
    INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
    SELECT gen_random_uuid(), '', '', '', n, decode(repeat('00', 1800), 'hex') FROM generate_series(1, 160) AS n;
    RAISE EXCEPTION USING ERRCODE = 'LS003';
  END IF;
EXCEPTION
  WHEN SQLSTATE 'LS003' THEN
    NULL;
END
$$;
-- +goose StatementEnd

-- Unpublished events, without a read of the published ones: the events that relays have
-- not finished, those that wait for a time or an operator, and the events behind them.
CREATE OR REPLACE VIEW outbox_pending AS
WITH low AS MATERIALIZED (
  SELECT coalesce((SELECT pg_snapshot_xmin(r.low) FROM outbox_relays r ORDER BY 1 LIMIT 1), '0'::xid8) AS xact
)
SELECT o.*
  FROM outbox o
 WHERE o.published_at IS NULL AND o.xact >= (SELECT xact FROM low)
UNION ALL
SELECT o.*
  FROM (SELECT h.aggregate_type, h.aggregate_id, min(h.version) AS version
          FROM (SELECT aggregate_type, aggregate_id, version FROM outbox WHERE parked_at IS NOT NULL
                UNION ALL
                SELECT aggregate_type, aggregate_id, version FROM outbox WHERE next_retry_at IS NOT NULL) h
         GROUP BY 1, 2) h
  JOIN outbox o ON o.aggregate_type = h.aggregate_type AND o.aggregate_id = h.aggregate_id AND o.version >= h.version
 WHERE o.published_at IS NULL AND o.xact < (SELECT xact FROM low);
-- +goose StatementBegin
DO $$ BEGIN EXECUTE format('GRANT SELECT ON outbox_pending TO %I', current_setting('eventing.role')); END $$;
-- +goose StatementEnd

-- +goose Down
DROP VIEW IF EXISTS outbox_pending;
DROP FUNCTION IF EXISTS outbox_refuses(text, text, bigint, bigint);
CREATE INDEX CONCURRENTLY outbox_new ON outbox (xact) WHERE published_at IS NULL AND version > 0;
CREATE INDEX CONCURRENTLY outbox_pending_aggregates ON outbox
  (aggregate_type COLLATE "C", aggregate_id COLLATE "C", version) WHERE published_at IS NULL;
ALTER TABLE outbox DROP COLUMN gapless,
  ADD CHECK (version > 0), ADD CHECK ((lock_token IS NULL) = (locked_at IS NULL)), ADD CHECK (published_at IS NULL OR lock_token IS NULL),
  SET (fillfactor = 90,
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05),
  RESET (vacuum_truncate, autovacuum_vacuum_threshold, autovacuum_vacuum_insert_threshold, autovacuum_analyze_threshold);
DROP INDEX CONCURRENTLY outbox_retry;
DROP INDEX CONCURRENTLY outbox_by_xact;
DROP TABLE outbox_relays;
