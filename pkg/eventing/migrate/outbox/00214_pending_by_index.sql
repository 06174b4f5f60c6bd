-- The view of unpublished events reads no published ones in two cases more, in which it has read millions.
--
-- Without statistics, as after pg_upgrade or a restore, the planner expects that next to all rows are parked, and that
-- next to all are to be retried. It reads the whole table for each of them. For a range with two bounds it expects a
-- two-hundredth, and uses the index.
--
-- A dump brings rows from another cluster. Their transactions may be above all that this cluster has reached, so the range
-- from the earliest low of the relays has all of them. The range now ends with the transactions that have begun, and has
-- the transaction of the query itself. The range has no end in two cases. Before a relay of this cluster has begun, the lows are
-- those of the dump, above all transactions of this cluster. While a relay has still to read the whole table, its low is
-- the beginning. After that the relay has found the restored events. Those that are parked or to be retried, and those
-- behind them, are looked up by their indexes.

-- +goose Up
SET LOCAL lock_timeout = '1500ms';
CREATE OR REPLACE VIEW outbox_pending AS
WITH earliest AS MATERIALIZED (
  SELECT coalesce((SELECT pg_snapshot_xmax(r.low) FROM outbox_relays r ORDER BY 1 LIMIT 1), '0'::xid8) AS xact
), low AS MATERIALIZED (
  SELECT xact, CASE WHEN xact <= '1'::xid8 OR xact > now.xmax THEN '18446744073709551615'::xid8 ELSE greatest(now.xmax, now.own) END AS until
    FROM earliest, (SELECT pg_snapshot_xmax(pg_current_snapshot()) AS xmax, pg_current_xact_id_if_assigned() AS own) AS now
), open AS MATERIALIZED (
  SELECT DISTINCT x.xact
    FROM outbox_relays r CROSS JOIN LATERAL pg_snapshot_xip(r.low) AS x (xact)
   WHERE x.xact < (SELECT xact FROM low)
)
SELECT o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.version, o.schema_version, o.payload, o.occurred_at, o.tenant_id, o.epoch, o.traceparent,
       o.published_at, o.publish_attempts, o.next_retry_at, o.lock_token, o.locked_at, o.parked_at, o.last_error, o.xact, o.source_event_id, o.gapless
  FROM outbox o
 WHERE o.published_at IS NULL AND o.xact >= (SELECT xact FROM low) AND o.xact <= (SELECT until FROM low)
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
          FROM (SELECT aggregate_type, aggregate_id, version FROM outbox WHERE parked_at >= '-infinity' AND parked_at <= 'infinity'
                UNION ALL
                SELECT aggregate_type, aggregate_id, version FROM outbox WHERE next_retry_at >= '-infinity' AND next_retry_at <= 'infinity') h
         GROUP BY 1, 2) h
 CROSS JOIN LATERAL (
  SELECT b.id, b.aggregate_type, b.aggregate_id, b.event_type, b.version, b.schema_version, b.payload, b.occurred_at, b.tenant_id, b.epoch, b.traceparent,
         b.published_at, b.publish_attempts, b.next_retry_at, b.lock_token, b.locked_at, b.parked_at, b.last_error, b.xact, b.source_event_id, b.gapless
    FROM outbox b
   WHERE b.aggregate_type = h.aggregate_type AND b.aggregate_id = h.aggregate_id AND b.version >= h.version
     AND b.published_at IS NULL
     AND (b.xact < (SELECT xact FROM low) OR b.xact > (SELECT until FROM low)) AND b.xact <> ALL(ARRAY(SELECT xact FROM open))
   ORDER BY b.version) o;
COMMENT ON TABLE outbox IS 'The events of the service. A row is written in the transaction of its change. A relay publishes the event, and deletes the row after the retention. The newest published row of each aggregate stays, without its payload.';

-- +goose Down
SET LOCAL lock_timeout = '1500ms';
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
