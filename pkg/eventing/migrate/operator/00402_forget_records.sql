-- The content that actions have removed, taken out of the audit table when a person's data
-- is erased. Operator, time and reason of each action stay.

-- +goose Up
SET LOCAL lock_timeout = '2s';
-- The records that have content, by aggregate.
CREATE INDEX operator_actions_with_record ON operator_actions (aggregate_type, aggregate_id) WHERE record IS NOT NULL;

-- The service's role cannot change the table: it can only remove the content of named
-- aggregates, and no call that removes any goes without an entry of its own.
-- +goose StatementBegin
CREATE FUNCTION operator_actions_forget(kind text, ids text[], who text, reason text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  forgotten bigint;
BEGIN
  UPDATE operator_actions SET record = NULL
   WHERE aggregate_type = kind AND aggregate_id = ANY (ids) AND record IS NOT NULL;
  GET DIAGNOSTICS forgotten = ROW_COUNT;
  IF forgotten > 0 THEN
    -- Of no aggregate: a second call leaves it as it is.
    INSERT INTO operator_actions (action, actor, why, record)
    VALUES ('forget', who, reason, jsonb_build_object('aggregate_type', kind, 'records', forgotten));
  END IF;
  RETURN forgotten;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
DO $$
BEGIN
  -- pg_temp last: a caller's temporary table is not taken for the audit table.
  EXECUTE format('ALTER FUNCTION operator_actions_forget(text, text[], text, text) SET search_path = %I, pg_temp', current_schema());
  REVOKE ALL ON FUNCTION operator_actions_forget(text, text[], text, text) FROM PUBLIC;
  EXECUTE format('GRANT EXECUTE ON FUNCTION operator_actions_forget(text, text[], text, text) TO %I', current_setting('eventing.role'));
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION operator_actions_forget(text, text[], text, text);
DROP INDEX operator_actions_with_record;
