-- The meaning of the function, where an administrator looks for it: psql's \df+ shows the comment.

-- +goose Up
SET LOCAL lock_timeout = '1500ms';
COMMENT ON FUNCTION confine_to_tenant(regclass, text) IS 'For migrations: lets requests see and write one tenant''s rows of a table, and the service the rows of all.';

-- +goose Down
-- The comment of a function ends with it.
