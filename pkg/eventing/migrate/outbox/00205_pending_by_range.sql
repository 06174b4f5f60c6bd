-- The view of unpublished events, in a form for which no plan reads the published ones.
--
-- For a condition with an unknown lower bound alone, the planner expects a third of the
-- table and reads all of it. For a range with two unknown bounds it expects a
-- two-hundredth and uses the index: so there is an upper bound, the largest xid8. The lower
-- bound is the first transaction that had not begun at the earliest low of the relays.
-- Transactions that were open then are looked up one by one: a range from one that stays
-- open for hours would cover all rows that were written since. ORDER BY keeps the other
-- parts from becoming joins, which may begin with the whole table.

-- +goose Up
SET LOCAL lock_timeout = '2s';
CREATE OR REPLACE VIEW outbox_pending AS
WITH low AS MATERIALIZED (
  SELECT coalesce((SELECT pg_snapshot_xmax(r.low) FROM outbox_relays r ORDER BY 1 LIMIT 1), '0'::xid8) AS xact
), open AS MATERIALIZED (
  SELECT DISTINCT x.xact
    FROM outbox_relays r CROSS JOIN LATERAL pg_snapshot_xip(r.low) AS x (xact)
   WHERE x.xact < (SELECT xact FROM low)
)
SELECT o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.version, o.schema_version, o.payload, o.occurred_at, o.tenant_id, o.epoch, o.traceparent,
       o.published_at, o.publish_attempts, o.next_retry_at, o.lock_token, o.locked_at, o.parked_at, o.last_error, o.xact, o.source_event_id, o.gapless
  FROM outbox o
 WHERE o.published_at IS NULL AND o.xact >= (SELECT xact FROM low) AND o.xact <= '18446744073709551615'
UNION ALL
SELECT o.*
  FROM open
 CROSS JOIN LATERAL (
  SELECT b.id, b.aggregate_type, b.aggregate_id, b.event_type, b.version, b.schema_version, b.payload, b.occurred_at, b.tenant_id, b.epoch, b.traceparent,
         b.published_at, b.publish_attempts, b.next_retry_at, b.lock_token, b.locked_at, b.parked_at, b.last_error, b.xact, b.source_event_id, b.gapless
    FROM outbox b
   WHERE b.published_at IS NULL AND b.xact >= open.xact AND b.xact <= open.xact
   ORDER BY b.xact) o
UNION ALL
SELECT o.*
  FROM (SELECT h.aggregate_type, h.aggregate_id, min(h.version) AS version
          FROM (SELECT aggregate_type, aggregate_id, version FROM outbox WHERE parked_at IS NOT NULL
                UNION ALL
                SELECT aggregate_type, aggregate_id, version FROM outbox WHERE next_retry_at IS NOT NULL) h
         GROUP BY 1, 2) h
 CROSS JOIN LATERAL (
  SELECT b.id, b.aggregate_type, b.aggregate_id, b.event_type, b.version, b.schema_version, b.payload, b.occurred_at, b.tenant_id, b.epoch, b.traceparent,
         b.published_at, b.publish_attempts, b.next_retry_at, b.lock_token, b.locked_at, b.parked_at, b.last_error, b.xact, b.source_event_id, b.gapless
    FROM outbox b
   WHERE b.aggregate_type = h.aggregate_type AND b.aggregate_id = h.aggregate_id AND b.version >= h.version
     AND b.published_at IS NULL AND b.xact < (SELECT xact FROM low) AND b.xact <> ALL(ARRAY(SELECT xact FROM open))
   ORDER BY b.version) o;

-- +goose Down
CREATE OR REPLACE VIEW outbox_pending AS
WITH low AS MATERIALIZED (
  SELECT coalesce((SELECT pg_snapshot_xmin(r.low) FROM outbox_relays r ORDER BY 1 LIMIT 1), '0'::xid8) AS xact
)
SELECT o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.version, o.schema_version, o.payload, o.occurred_at, o.tenant_id, o.epoch, o.traceparent,
       o.published_at, o.publish_attempts, o.next_retry_at, o.lock_token, o.locked_at, o.parked_at, o.last_error, o.xact, o.source_event_id, o.gapless
  FROM outbox o
 WHERE o.published_at IS NULL AND o.xact >= (SELECT xact FROM low)
UNION ALL
SELECT o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.version, o.schema_version, o.payload, o.occurred_at, o.tenant_id, o.epoch, o.traceparent,
       o.published_at, o.publish_attempts, o.next_retry_at, o.lock_token, o.locked_at, o.parked_at, o.last_error, o.xact, o.source_event_id, o.gapless
  FROM (SELECT h.aggregate_type, h.aggregate_id, min(h.version) AS version
          FROM (SELECT aggregate_type, aggregate_id, version FROM outbox WHERE parked_at IS NOT NULL
                UNION ALL
                SELECT aggregate_type, aggregate_id, version FROM outbox WHERE next_retry_at IS NOT NULL) h
         GROUP BY 1, 2) h
  JOIN outbox o ON o.aggregate_type = h.aggregate_type AND o.aggregate_id = h.aggregate_id AND o.version >= h.version
 WHERE o.published_at IS NULL AND o.xact < (SELECT xact FROM low);
