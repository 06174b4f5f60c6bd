-- Rows belong to tenants. Those of before belong to the tenant of a system without tenants.
-- The columns are added without a rewrite of the tables.
--
-- Requests read the projections and their counters, of one tenant, and write nothing.

-- +goose Up
-- +goose StatementBegin
DO $$
DECLARE
  request text := current_setting('eventing.request_role');
BEGIN
  SET LOCAL lock_timeout = '2s';
  ALTER TABLE catalog.video_projection ADD COLUMN IF NOT EXISTS tenant_id text NOT NULL DEFAULT 'default';
  ALTER TABLE catalog.video_user_engagements_projection ADD COLUMN IF NOT EXISTS tenant_id text NOT NULL DEFAULT 'default';
  ALTER TABLE catalog.video_counters ADD COLUMN IF NOT EXISTS tenant_id text NOT NULL DEFAULT 'default';
  PERFORM confine_to_tenant('catalog.video_projection'), confine_to_tenant('catalog.video_user_engagements_projection'),
          confine_to_tenant('catalog.video_counters');
  EXECUTE format('GRANT SELECT ON catalog.video_projection, catalog.video_user_engagements_projection, catalog.video_counters TO %I', request);
END
$$;
-- +goose StatementEnd

-- As in 01002, with the tenant of the engagements, which is that of their video.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION catalog.count_engagements() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN
    INSERT INTO catalog.video_counters AS c (video_id, operation, likes, bookmarks, watched_seconds, tenant_id)
    SELECT video_id, TG_OP, sum(sign * liked::int), sum(sign * bookmarked::int), sum(sign * watched_seconds::numeric), min(tenant_id)
      FROM (SELECT 1 AS sign, video_id, liked, bookmarked, watched_seconds, deleted_at, tenant_id FROM after_rows UNION ALL
            SELECT -1, video_id, liked, bookmarked, watched_seconds, deleted_at, tenant_id FROM before_rows) AS changed
     WHERE deleted_at IS NULL GROUP BY video_id
    HAVING (sum(sign * liked::int), sum(sign * bookmarked::int), sum(sign * watched_seconds::numeric)) <> (0, 0, 0)
     ORDER BY video_id
    ON CONFLICT (video_id, operation) DO UPDATE SET likes = c.likes + excluded.likes,
       bookmarks = c.bookmarks + excluded.bookmarks, watched_seconds = c.watched_seconds + excluded.watched_seconds, tenant_id = excluded.tenant_id;
  ELSIF TG_OP = 'INSERT' THEN
    INSERT INTO catalog.video_counters AS c (video_id, operation, likes, bookmarks, watched_seconds, tenant_id)
    SELECT video_id, TG_OP, sum(liked::int), sum(bookmarked::int), sum(watched_seconds), min(tenant_id)
      FROM after_rows
     WHERE deleted_at IS NULL GROUP BY video_id
    HAVING (sum(liked::int), sum(bookmarked::int), sum(watched_seconds)) <> (0, 0, 0)
     ORDER BY video_id
    ON CONFLICT (video_id, operation) DO UPDATE SET likes = c.likes + excluded.likes,
       bookmarks = c.bookmarks + excluded.bookmarks, watched_seconds = c.watched_seconds + excluded.watched_seconds, tenant_id = excluded.tenant_id;
  ELSE
    INSERT INTO catalog.video_counters AS c (video_id, operation, likes, bookmarks, watched_seconds, tenant_id)
    SELECT video_id, TG_OP, -sum(liked::int), -sum(bookmarked::int), -sum(watched_seconds), min(tenant_id)
      FROM before_rows
     WHERE deleted_at IS NULL GROUP BY video_id
     ORDER BY video_id
    ON CONFLICT (video_id, operation) DO UPDATE SET likes = c.likes + excluded.likes,
       bookmarks = c.bookmarks + excluded.bookmarks, watched_seconds = c.watched_seconds + excluded.watched_seconds, tenant_id = excluded.tenant_id;
  END IF;
  RETURN NULL;
END
$$;
-- +goose StatementEnd

-- As in 01002. A wrong tenant is drift as well: counters that their readers do not see.
CREATE OR REPLACE VIEW catalog.video_counter_drift AS
  SELECT video_id, sum(likes)::bigint AS likes, sum(bookmarks)::bigint AS bookmarks, sum(watched_seconds) AS watched_seconds
    FROM (SELECT video_id, sum(liked::int) AS likes, sum(bookmarked::int) AS bookmarks, sum(watched_seconds) AS watched_seconds,
                 min(tenant_id) AS first_tenant, max(tenant_id) AS last_tenant
            FROM catalog.video_user_engagements_projection WHERE deleted_at IS NULL GROUP BY video_id
          UNION ALL SELECT video_id, -likes, -bookmarks, -watched_seconds, tenant_id, tenant_id FROM catalog.video_counters) AS entry
   GROUP BY video_id
  HAVING (sum(likes), sum(bookmarks), sum(watched_seconds)) <> (0, 0, 0) OR min(first_tenant) <> max(last_tenant);

-- The tenant of a video's counters is that of its engagements, or else of the counters
-- themselves: without either there is no drift.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION catalog.tenant_of_counters(video uuid) RETURNS text STABLE LANGUAGE sql AS $$
  SELECT coalesce((SELECT min(tenant_id) FROM catalog.video_user_engagements_projection WHERE video_id = video AND deleted_at IS NULL),
                  (SELECT min(tenant_id) FROM catalog.video_counters WHERE video_id = video), 'default')
$$;
-- +goose StatementEnd

-- As in 01002 and 01007, with the tenant.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION catalog.recount_videos() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  wrong bigint;
  moved bigint;
BEGIN
  -- Two recounts at once would add one drift twice. The next statement has a new snapshot.
  PERFORM pg_advisory_xact_lock(hashtext('lockstep recount videos'));
  UPDATE catalog.video_counters AS c SET tenant_id = catalog.tenant_of_counters(c.video_id)
   WHERE c.video_id IN (SELECT video_id FROM catalog.video_counter_drift) AND c.tenant_id <> catalog.tenant_of_counters(c.video_id);
  GET DIAGNOSTICS moved = ROW_COUNT;
  INSERT INTO catalog.video_counters AS c (video_id, operation, likes, bookmarks, watched_seconds, tenant_id)
  SELECT video_id, 'RECOUNT', likes, bookmarks, watched_seconds, catalog.tenant_of_counters(video_id) FROM catalog.video_counter_drift
  ON CONFLICT (video_id, operation) DO UPDATE SET likes = c.likes + excluded.likes,
     bookmarks = c.bookmarks + excluded.bookmarks, watched_seconds = c.watched_seconds + excluded.watched_seconds, tenant_id = excluded.tenant_id;
  GET DIAGNOSTICS wrong = ROW_COUNT;
  RETURN wrong + moved;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION catalog.recount_videos(videos uuid[]) RETURNS TABLE (recounted uuid, added json) LANGUAGE plpgsql AS $$
BEGIN
  -- Two recounts at once would add one drift twice. The next statement has a new snapshot.
  PERFORM pg_advisory_xact_lock(hashtext('lockstep recount videos'));
  RETURN QUERY
  WITH drift AS MATERIALIZED (
    SELECT d.video_id, d.likes, d.bookmarks, d.watched_seconds FROM catalog.video_counter_drift AS d WHERE d.video_id = ANY (videos)
  ), counted AS (
    INSERT INTO catalog.video_counters AS c (video_id, operation, likes, bookmarks, watched_seconds, tenant_id)
    SELECT d.video_id, 'RECOUNT', d.likes, d.bookmarks, d.watched_seconds, catalog.tenant_of_counters(d.video_id) FROM drift AS d
    ON CONFLICT (video_id, operation) DO UPDATE SET likes = c.likes + excluded.likes,
       bookmarks = c.bookmarks + excluded.bookmarks, watched_seconds = c.watched_seconds + excluded.watched_seconds, tenant_id = excluded.tenant_id
  )
  SELECT d.video_id, json_build_object('likes', d.likes, 'bookmarks', d.bookmarks, 'watched_seconds', d.watched_seconds) FROM drift AS d;
  UPDATE catalog.video_counters AS c SET tenant_id = catalog.tenant_of_counters(c.video_id)
   WHERE c.video_id = ANY (videos) AND c.tenant_id <> catalog.tenant_of_counters(c.video_id);
END
$$;
-- +goose StatementEnd

-- +goose Down
-- The columns stay, and the functions that fill them.
-- +goose StatementBegin
DO $$
DECLARE
  confined text;
BEGIN
  FOREACH confined IN ARRAY ARRAY['catalog.video_projection', 'catalog.video_user_engagements_projection', 'catalog.video_counters'] LOOP
    EXECUTE format('REVOKE ALL ON %s FROM %I', confined, current_setting('eventing.request_role'));
    EXECUTE format('DROP POLICY owner ON %s', confined);
    EXECUTE format('DROP POLICY every_tenant ON %s', confined);
    EXECUTE format('DROP POLICY one_tenant ON %s', confined);
    EXECUTE format('ALTER TABLE %s NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY', confined);
  END LOOP;
END
$$;
-- +goose StatementEnd
