-- Settings of the service's role that are missing. The first migration makes none of its settings if an
-- administrator has made any setting for the role before, such as one for the log. Without the search_path
-- the service finds no table. A setting that an administrator has made stays.
--
-- bytea_output, IntervalStyle and array_nulls: behind a transaction pooler values go as text in both directions,
-- and pgx reads and writes one form of each. A pooler may refuse them as parameters of a connection.
--
-- tcp_*: the server ends a session within some 60 s after its client is gone without a word, as when the
-- client's machine or the network between them is lost. By the defaults of Linux it needs two hours for an idle
-- session. Until then the sessions of lost instances count against the limit of connections, to which the
-- new instances add theirs.

-- +goose Up
SET LOCAL lock_timeout = '1500ms';
-- +goose StatementBegin
DO $$
DECLARE
  service text := current_setting('eventing.role');
  setting record;
BEGIN
  FOR attempt IN 1..20 LOOP
    BEGIN
      FOR setting IN
        SELECT name, value
          FROM (VALUES ('search_path', current_schema()::text), ('statement_timeout', '15s'), ('lock_timeout', '10s'),
                       ('idle_in_transaction_session_timeout', '15s'),
                       ('bytea_output', 'hex'), ('intervalstyle', 'postgres'), ('array_nulls', 'on'),
                       ('tcp_keepalives_idle', '30'), ('tcp_keepalives_interval', '10'),
                       ('tcp_keepalives_count', '3'), ('tcp_user_timeout', '60000')) AS v (name, value)
         WHERE NOT EXISTS (
               SELECT FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) AS c
                WHERE r.rolname = service AND s.setdatabase = 0 AND lower(split_part(c, '=', 1)) = name)
      LOOP
        EXECUTE format('ALTER ROLE %I SET %I = %L', service, setting.name, setting.value);
      END LOOP;
      RETURN;
    EXCEPTION
      -- internal_error is "tuple concurrently updated" from a system table.
      WHEN unique_violation OR internal_error THEN
        PERFORM pg_sleep(random() * 0.05);
    END;
  END LOOP;
  RAISE EXCEPTION 'role %: still contended after 20 attempts', service;
END
$$;
-- +goose StatementEnd

-- +goose Down
