-- The server ends a session within some 60 s after its client is gone without a word, as when the client's
-- machine or the network between them is lost. By the defaults of Linux it needs two hours for an idle
-- session. Until then the sessions of lost instances count against the limit of connections, to which the
-- new instances add theirs. A setting that an administrator has made for the role before stays.

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
          FROM (VALUES ('tcp_keepalives_idle', '30'), ('tcp_keepalives_interval', '10'),
                       ('tcp_keepalives_count', '3'), ('tcp_user_timeout', '60000')) AS v (name, value)
         WHERE NOT EXISTS (
               SELECT FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) AS c
                WHERE r.rolname = service AND s.setdatabase = 0 AND c LIKE name || '=%')
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
