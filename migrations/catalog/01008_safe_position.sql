-- The safe position after a seek back. A live message that is delivered before the replayed
-- ones moves an instance's offset to the present, and an hour later only the seek's own row
-- knows of the replay. So that row counts for as long as the time that is replayed: a replay
-- takes no longer than the messages took at first.

-- +goose Up
CREATE OR REPLACE VIEW catalog.engagement_offsets_by_group AS
SELECT g.consumer_group, g.subscription,
       least(g.least_recent - interval '10 minutes', held.oldest) AS safe_position,
       g.publish_time, held.oldest AS oldest_held, g.instances, g.updated_at
  FROM (SELECT consumer_group, subscription, max(publish_time) AS publish_time, newest AS updated_at,
               min(publish_time) FILTER (WHERE updated_at > newest - greatest(interval '1 hour',
                 CASE WHEN source <> 'save' THEN updated_at - publish_time END)) AS least_recent,
               count(*) FILTER (WHERE updated_at > newest - interval '1 hour' AND source = 'save') AS instances
          FROM (SELECT *, max(updated_at) OVER (PARTITION BY consumer_group, subscription) AS newest
                  FROM catalog.engagement_offsets) AS o
         GROUP BY consumer_group, subscription, newest) AS g
  LEFT JOIN LATERAL (
       SELECT min(i.publish_time) AS oldest FROM catalog.inbox AS i
        WHERE i.consumer = g.subscription AND i.status = 'held' AND i.publish_time > now() - interval '31 days') AS held ON true;

-- +goose Down
CREATE OR REPLACE VIEW catalog.engagement_offsets_by_group AS
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
