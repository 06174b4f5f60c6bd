-- Rows belong to tenants. Those of before belong to the tenant of a system without tenants.
-- The columns are added without a rewrite of the tables.

-- +goose Up
-- +goose StatementBegin
DO $$
DECLARE
  request text := current_setting('eventing.request_role');
BEGIN
  SET LOCAL lock_timeout = '2s';
  -- In the order in which a request uses the tables.
  ALTER TABLE video.engagements ADD COLUMN tenant_id text NOT NULL DEFAULT 'default';
  ALTER TABLE video.videos ADD COLUMN tenant_id text NOT NULL DEFAULT 'default';
  ALTER TABLE video.idempotency_keys ADD COLUMN tenant_id text NOT NULL DEFAULT 'default';
  -- A key is written in the transaction of its request, hence by its tenant. After such a
  -- transaction the setting is empty in its session.
  ALTER TABLE video.idempotency_keys ALTER COLUMN tenant_id SET DEFAULT coalesce(nullif(current_setting('eventing.tenant', true), ''), 'default');
  PERFORM confine_to_tenant('video.videos'), confine_to_tenant('video.engagements'), confine_to_tenant('video.idempotency_keys');
  EXECUTE format('GRANT SELECT, INSERT, UPDATE ON video.videos, video.engagements, video.idempotency_keys TO %I', request);
END
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DO $$
DECLARE
  confined text;
BEGIN
  EXECUTE format('REVOKE ALL ON video.videos, video.engagements, video.idempotency_keys FROM %I', current_setting('eventing.request_role'));
  FOREACH confined IN ARRAY ARRAY['video.videos', 'video.engagements', 'video.idempotency_keys'] LOOP
    EXECUTE format('DROP POLICY owner ON %s', confined);
    EXECUTE format('DROP POLICY every_tenant ON %s', confined);
    EXECUTE format('DROP POLICY one_tenant ON %s', confined);
    EXECUTE format('ALTER TABLE %s NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY, DROP COLUMN tenant_id', confined);
  END LOOP;
END
$$;
-- +goose StatementEnd
