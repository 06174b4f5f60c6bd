-- The table of versions has the numbers of the applied migrations, and not their files. With the names, Up refuses a release
-- that has another file under a number that was applied.

-- +goose Up
SET LOCAL lock_timeout = '1500ms';
CREATE TABLE migration_files (
  number bigint PRIMARY KEY,
  file   text   NOT NULL
);
COMMENT ON TABLE migration_files IS 'The files of the applied migrations. One row for each migration. A row stays for ever.';
COMMENT ON COLUMN migration_files.number IS 'The migration''s number in this schema, as version_id in goose_db_version.';
COMMENT ON COLUMN migration_files.file IS 'The name of the file. Of a migration that was applied before this table was there, it is the name in the release that made the table.';

-- +goose Down
SET LOCAL lock_timeout = '1500ms';
DROP TABLE migration_files;
