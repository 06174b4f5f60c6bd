package rebuild

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/operator/audit"
)

// Shadow is the name of a table's shadow.
func Shadow(table string) string { return table + "_shadow" }

// copyTable is the statements that make the shadow $2 of a table $1. LIKE copies neither the
// owner nor rights and policies nor storage options, targets of statistics and the replica identity. Default
// privileges may have given others.
const copyTable = `
	SELECT statement FROM (
	  SELECT 1 AS step, format('ALTER TABLE %s OWNER TO %I', $2::text::regclass, relowner::regrole::text) AS statement
	    FROM pg_class WHERE oid = $1::text::regclass AND relowner <> current_user::regrole
	  UNION ALL
	  SELECT 2, format('ALTER TABLE %s SET (%s)', $2::text::regclass, array_to_string(reloptions, ', '))
	    FROM pg_class WHERE oid = $1::text::regclass AND reloptions IS NOT NULL
	  UNION ALL
	  SELECT 2, format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS %s', $2::text::regclass, attname, attstattarget)
	    FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attstattarget >= 0
	  UNION ALL
	  SELECT 2, format('ALTER TABLE %s REPLICA IDENTITY %s', $2::text::regclass, CASE relreplident WHEN 'f' THEN 'FULL' ELSE 'NOTHING' END)
	    FROM pg_class WHERE oid = $1::text::regclass AND relreplident IN ('f', 'n')
	  UNION ALL
	  SELECT 3, format('REVOKE ALL ON %s FROM %s', $2::text::regclass, {grantee})
	    FROM pg_class, aclexplode(relacl) AS a WHERE oid = $2::text::regclass
	  UNION ALL
	  SELECT 4, format('GRANT %s ON %s TO %s%s', privilege_type, $2::text::regclass, {grantee},
	                   CASE WHEN is_grantable THEN ' WITH GRANT OPTION' END)
	    FROM pg_class, aclexplode(relacl) AS a WHERE oid = $1::text::regclass
	  UNION ALL
	  SELECT 5, format('ALTER TABLE %s %s ROW LEVEL SECURITY', $2::text::regclass, setting)
	    FROM pg_class, LATERAL (VALUES ('ENABLE', relrowsecurity), ('FORCE', relforcerowsecurity)) AS v (setting, used)
	   WHERE oid = $1::text::regclass AND used
	  UNION ALL
	  SELECT 6, format('CREATE POLICY %I ON %s AS %s FOR %s TO %s%s%s', polname, $2::text::regclass,
	                   CASE WHEN polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
	                   CASE polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END,
	                   {roles}, ' USING (' || pg_get_expr(polqual, polrelid) || ')',
	                   ' WITH CHECK (' || pg_get_expr(polwithcheck, polrelid) || ')')
	    FROM pg_policy WHERE polrelid = $1::text::regclass
	) AS s ORDER BY step`

// roles are those of a policy.
const roles = `
	(SELECT string_agg(CASE role WHEN 0 THEN 'PUBLIC' ELSE quote_ident(role::regrole::text) END, ', ') FROM unnest(polroles) AS role)`

// mirror copies the rows that a statement writes, as they are written, in the order of their
// keys. It names its tables: after an exchange it copies in the other direction.
const mirror = `
	CREATE FUNCTION {mirror}() RETURNS trigger LANGUAGE plpgsql AS $mirror$
	BEGIN
	  IF TG_OP = 'DELETE' THEN
	    DELETE FROM {shadow} AS c USING before_rows AS b WHERE ({c.key}) = ({b.key});
	  ELSE
	    INSERT INTO {shadow} ({columns}) SELECT {columns} FROM after_rows ORDER BY {key}
	    ON CONFLICT ({key}) DO UPDATE SET ({columns}) = ROW({excluded});
	  END IF;
	  RETURN NULL;
	END
	$mirror$;
	CREATE TRIGGER mirror_inserted AFTER INSERT ON {table} REFERENCING NEW TABLE AS after_rows FOR EACH STATEMENT EXECUTE FUNCTION {mirror}();
	CREATE TRIGGER mirror_updated AFTER UPDATE ON {table} REFERENCING NEW TABLE AS after_rows FOR EACH STATEMENT EXECUTE FUNCTION {mirror}();
	CREATE TRIGGER mirror_deleted AFTER DELETE ON {table} REFERENCING OLD TABLE AS before_rows FOR EACH STATEMENT EXECUTE FUNCTION {mirror}()`

// noMigration tries the lock that package migrate holds while it migrates the schema. The lock is
// that of the transaction: the next migration finds the state, and is refused.
const noMigration = `SELECT pg_try_advisory_xact_lock(hashtext('lockstep migrate ' || current_schema()))`

// create makes the shadows, the mirrors and the state, all or none of them, and returns
// ErrMigrating during a migration. The triggers wait for the writers under way: a row that none
// of them copies is a row that the served table does not have yet.
func (r *Rebuild) create(ctx context.Context, by audit.Actor) error {
	err := r.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var quiet bool
		switch err := tx.QueryRow(ctx, noMigration).Scan(&quiet); {
		case err != nil:
			return err
		case !quiet:
			return ErrMigrating
		}
		if err := calm(ctx, tx, r.tables); err != nil {
			return err
		}
		for _, p := range r.parts {
			if err := p.create(ctx, tx); err != nil {
				return err
			}
			if err := p.sameShape(ctx, tx); err != nil {
				return fmt.Errorf("a shadow cannot have all that %s has: %w", p.Table, err)
			}
		}
		if _, err := tx.Exec(ctx, createState); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO rebuild_state (phase, aggregate_type, started_by) VALUES ($1, $2, $3)`,
			Filling, r.parts[0].Shadow.Type(), by.By)
		if err != nil {
			return err
		}
		return audit.Write(ctx, tx, "rebuild", by, r.subjects...)
	})
	if err != nil {
		return fmt.Errorf("create the shadow tables: %w", err)
	}
	return nil
}

func (p Part) create(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, p.sql(`CREATE TABLE {shadow} (LIKE {table} INCLUDING ALL)`)); err != nil {
		return err
	}
	if err := execAll(ctx, tx, p.sql(copyTable), p.Table, Shadow(p.Table)); err != nil {
		return err
	}
	statement, err := p.withColumns(ctx, tx, mirror)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, statement)
	return err
}

// drop removes the shadows, the mirrors and the state of the rebuild s.
func (r *Rebuild) drop(ctx context.Context, tx pgx.Tx, s State) error {
	if err := s.update(ctx, tx, `DELETE FROM rebuild_state`); err != nil {
		return err
	}
	var statements []string
	for _, p := range r.parts {
		statements = append(statements, p.sql(`DROP TRIGGER mirror_inserted ON {table}; DROP TRIGGER mirror_updated ON {table};
			DROP TRIGGER mirror_deleted ON {table}; DROP FUNCTION {mirror}(); DROP TABLE {shadow}`))
	}
	_, err := tx.Exec(ctx, strings.Join(append(statements, `DROP TABLE rebuild_state`), "; "))
	return err
}

// withColumns fills in a statement's parts that depend on the table and its columns.
func (p Part) withColumns(ctx context.Context, db querier, statement string) (string, error) {
	var schema, columns, excluded, served string
	err := db.QueryRow(ctx, `
		SELECT current_schema(), string_agg(quote_ident(attname), ', ' ORDER BY attnum),
		       string_agg('excluded.' || quote_ident(attname), ', ' ORDER BY attnum),
		       string_agg('s.' || quote_ident(attname), ', ' ORDER BY attnum)
		  FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''`, p.Table,
	).Scan(&schema, &columns, &excluded, &served)
	if err != nil {
		return "", err
	}
	// The names in the mirror's function must not depend on the writer's search_path.
	in := func(name string) string { return pgx.Identifier{schema, name}.Sanitize() }
	return p.sql(strings.NewReplacer("{table}", in(p.Table), "{shadow}", in(Shadow(p.Table)), "{mirror}", in("mirror_"+p.Table),
		"{columns}", columns, "{excluded}", excluded, "{s.columns}", served).Replace(statement)), nil
}

// sql fills in a statement's parts that depend on the table.
func (p Part) sql(statement string) string {
	of := func(alias string) string { return alias + strings.Join(p.Key, ", "+alias) }
	return strings.NewReplacer("{table}", pgx.Identifier{p.Table}.Sanitize(), "{shadow}", pgx.Identifier{Shadow(p.Table)}.Sanitize(),
		"{mirror}", pgx.Identifier{"mirror_" + p.Table}.Sanitize(),
		"{key}", of(""), "{c.key}", of("c."), "{b.key}", of("b."), "{s.key}", of("s."),
		"{id}", p.Key.IDExpr(), "{after}", p.Key.KeyExpr("$1"),
		"{roles}", roles, "{grantee}", `CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(a.grantee::regrole::text) END`).Replace(statement)
}
