package migrate

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// If a database came to its server as a dump, or by logical replication, some results of its migrations are missing,
// and the schema says that the migrations were applied. The functions of this file make these results again.

// restoreRole gives the service's role each setting that it lacks, and makes it a member of the request role. Both
// belong to the server, so no dump of a database has them. A setting that an administrator has made stays.
func restoreRole(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, roleStatement()); err != nil {
		return fmt.Errorf("restore the settings of the service's role: %w", err)
	}
	return nil
}

// roleStatement does the same as the migrations of the role do. Migrations of two databases may change one role
// at the same moment, so it tries again.
func roleStatement() string {
	values := []string{`('search_path', current_schema()::text)`}
	for _, name := range slices.Sorted(maps.Keys(roleSettings)) {
		values = append(values, fmt.Sprintf(`('%s', '%s')`, name, roleSettings[name])) // constants without quotes
	}
	return `DO $$
DECLARE
  service text := current_setting('eventing.role');
  request text := current_setting('eventing.request_role');
  setting record;
BEGIN
  FOR attempt IN 1..20 LOOP
    BEGIN
      FOR setting IN
        SELECT name, value FROM (VALUES ` + strings.Join(values, ", ") + `) AS v (name, value)
         WHERE NOT EXISTS (
               SELECT FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) AS c
                WHERE r.rolname = service AND s.setdatabase = 0 AND lower(split_part(c, '=', 1)) = name)
      LOOP
        EXECUTE format('ALTER ROLE %I SET %I = %L', service, setting.name, setting.value);
      END LOOP;
      IF request <> '' AND NOT pg_has_role(service, request, 'MEMBER') THEN
        EXECUTE format('GRANT %I TO %I', request, service);
      END IF;
      RETURN;
    EXCEPTION
      -- internal_error is "tuple concurrently updated" from a system table.
      WHEN unique_violation OR internal_error THEN
        PERFORM pg_sleep(random() * 0.05);
    END;
  END LOOP;
  RAISE EXCEPTION 'role %: still contended after 20 attempts', service;
END
$$`
}

// restoreSequences moves the sequences of goose's and the operators' table that are behind their columns. Logical
// replication copies the rows and not the sequences. The next migration, and each action of an operator, would then
// fail as a duplicate. The service's own sequences stay, because not each is to be ahead of its column.
func restoreSequences(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `DO $$
DECLARE
  s record;
BEGIN
  FOR s IN
    SELECT seq.oid::regclass AS sequence, owner.oid::regclass AS owner, a.attname AS name
      FROM pg_class seq
      JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = seq.oid
                      AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
      JOIN pg_class owner ON owner.oid = d.refobjid
      JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
     WHERE seq.relkind = 'S' AND owner.relnamespace = current_schema()::regnamespace
       AND owner.relname IN ('`+versions+`', 'operator_actions')
  LOOP
    EXECUTE format('SELECT setval(%1$L, newest) FROM (SELECT max(%2$I) AS newest FROM %3$s) AS t
                     WHERE newest > coalesce(pg_sequence_last_value(%1$L), 0)', s.sequence, s.name, s.owner);
  END LOOP;
END
$$`)
	if err != nil {
		return fmt.Errorf("restore the sequences: %w", err)
	}
	return nil
}
