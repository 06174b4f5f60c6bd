-- The checkpoints of the consumer of engagements: the table of pkg/eventing/checkpoint.

-- +goose Up
CREATE TABLE catalog.engagement_offsets (
  consumer_group text        NOT NULL,
  -- A row for each instance, so that instances do not wait for each other's commits; one
  -- for the last reset, and one for each deployment that began with a seek.
  instance       text        NOT NULL,
  source         text        NOT NULL DEFAULT 'save' CHECK (source IN ('save', 'reset', 'start')),
  subscription   text        NOT NULL,
  -- The message with the greatest publish time among those that the instance has
  -- committed. It only moves forward; a reset deletes the row.
  message_id     text        NOT NULL,
  publish_time   timestamptz NOT NULL,
  -- The age of the last batch's newest message at its commit. In a replay it rises,
  -- although publish_time stays.
  lag_millis     bigint      NOT NULL,
  updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- The revision or host of an instance; the person who reset.
  updated_by     text        NOT NULL,
  PRIMARY KEY (consumer_group, instance)
) WITH (fillfactor = 50); -- room for the next version of a row: no index changes

-- The position of a group. From safe_position a replay loses nothing; from a later one it
-- may, because a seek acknowledges all messages from before its time.
--
-- The greatest publish time of the group is not safe: an instance may have an earlier
-- message in hand. So it is the least of three times.
--   1. The least publish time of the instances. The messages that an instance has in hand
--      are about as old as its own position, or newer.
--   2. Ten minutes are taken off, Pub/Sub's longest lease and longest backoff: a message
--      that was delivered before and not applied may come after newer ones.
--   3. The oldest event that waits in the inbox, for as long as Pub/Sub can keep it
--      (31 days).
-- An instance counts for an hour after its last save, by the group's newest save: after its
-- death its messages come again within minutes, to others. A group that stands still
-- forgets no instance. No table knows the messages that the broker has not delivered, nor
-- those of an instance that reaches the broker and not the database: there the metric
-- oldest_unacked_message_age of the subscription decides.
CREATE VIEW catalog.engagement_offsets_by_group AS
SELECT g.consumer_group, g.subscription,
       least(g.least_recent - interval '10 minutes', held.oldest) AS safe_position,
       g.publish_time, held.oldest AS oldest_held, g.instances, g.updated_at
  FROM (SELECT consumer_group, subscription, max(publish_time) AS publish_time, newest AS updated_at,
               min(publish_time) FILTER (WHERE updated_at > newest - interval '1 hour') AS least_recent,
               count(*) FILTER (WHERE updated_at > newest - interval '1 hour' AND source = 'save') AS instances
          FROM (SELECT *, max(updated_at) OVER (PARTITION BY consumer_group, subscription) AS newest
                  FROM catalog.engagement_offsets) AS o
         GROUP BY consumer_group, subscription, newest) AS g
  LEFT JOIN LATERAL (
       SELECT min(i.publish_time) AS oldest FROM catalog.inbox AS i
        WHERE i.consumer = g.subscription AND i.status = 'held' AND i.publish_time > now() - interval '31 days') AS held ON true;

GRANT SELECT, INSERT, UPDATE, DELETE ON catalog.engagement_offsets TO catalog_service;
GRANT SELECT ON catalog.engagement_offsets_by_group TO catalog_service;

-- +goose Down
DROP VIEW catalog.engagement_offsets_by_group;
DROP TABLE catalog.engagement_offsets;
