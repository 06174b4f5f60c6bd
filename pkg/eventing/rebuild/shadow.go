package rebuild

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/migrate"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

// Shadow is the name of a table's shadow.
func Shadow(table string) string { return table + "_shadow" }

// copyTable selects the statements that complete the shadow $2 of table $1. LIKE does not copy the
// owner, rights, policies, storage options, options and statistics targets of columns, the replica
// identity, or the comment of the table. Rights that the shadow got by default privileges are revoked.
//
//go:embed copy_table.sql
var copyTable string

// roles is the SQL expression for the roles of a policy. The text of a regrole is quoted where that is needed.
const roles = `
	(SELECT string_agg(CASE role WHEN 0 THEN 'PUBLIC' ELSE role::regrole::text END, ', ') FROM unnest(polroles) AS role)`

// mirror creates the triggers that copy each row that a statement writes, in the order of the keys.
// Their function refers to the tables by name, so after an exchange it copies in the other
// direction.
//
//go:embed mirror.sql
var mirror string

// noMigration is the statement that tries to get two locks: migrate.Lock, which package migrate holds while it
// migrates the schema, and migrate.IndexLock. A transaction that gets the locks keeps them until the transaction ends.
// From then on package migrate finds the table rebuild_state, and refuses to migrate.
const noMigration = `SELECT pg_try_advisory_xact_lock(` + migrate.Lock + `)
	AND pg_try_advisory_xact_lock(` + migrate.IndexLock + `)`

// create makes, in one transaction, the shadows, the triggers that mirror writes into them, and the table
// rebuild_state. It returns ErrMigrating during a migration. The creation of a trigger waits for the
// transactions that write to the table. So each row either was committed before the trigger existed, or the
// trigger copies it.
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
		mirrors, err := r.createShadows(ctx, tx)
		if err != nil {
			return err
		}
		if err := r.createState(ctx, tx, by); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, mirrors) // last, because events wait from here on until the transaction ends
		return err
	})
	if err != nil {
		return fmt.Errorf("create the shadow tables: %w", err)
	}
	return nil
}

// createShadows makes the shadows, and returns the statements that make the triggers of their mirrors.
func (r *Rebuild) createShadows(ctx context.Context, tx pgx.Tx) (mirrors string, err error) {
	var statements []string
	for _, p := range r.parts {
		statement, err := p.create(ctx, tx)
		if err != nil {
			return "", err
		}
		if err := p.sameShape(ctx, tx); err != nil {
			return "", fmt.Errorf("a shadow cannot have all that %s has: %w", p.Table, err)
		}
		statements = append(statements, statement)
	}
	return strings.Join(statements, ";\n"), nil
}

// createState makes the table rebuild_state, and writes the begin into the audit table.
func (r *Rebuild) createState(ctx context.Context, tx pgx.Tx, by audit.Actor) error {
	if _, err := tx.Exec(ctx, createState); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO rebuild_state (phase, aggregate_type, started_by) VALUES ($1, $2, $3)`,
		Filling, r.parts[0].Shadow.Type(), by.By)
	if err != nil {
		return err
	}
	return audit.Write(ctx, tx, "rebuild", by, r.subjects...)
}

// create makes the shadow, and returns the statement that makes the triggers of its mirror.
func (p Part) create(ctx context.Context, tx pgx.Tx) (mirrors string, err error) {
	if _, err := tx.Exec(ctx, p.sql(`CREATE TABLE {shadow} (LIKE {table} INCLUDING ALL)`)); err != nil {
		return "", err
	}
	if err := execAll(ctx, tx, p.sql(copyTable), p.Table, Shadow(p.Table)); err != nil {
		return "", err
	}
	return p.withColumns(ctx, tx, mirror)
}

// drop returns the statements that remove the shadows, the mirrors and the table rebuild_state.
func (r *Rebuild) drop() (statements []string) {
	for _, p := range r.parts {
		statements = append(statements, p.sql(`DROP TRIGGER IF EXISTS mirror_inserted ON {table};
			DROP TRIGGER IF EXISTS mirror_updated ON {table}; DROP TRIGGER IF EXISTS mirror_deleted ON {table};
			DROP FUNCTION IF EXISTS {mirror}(); DROP TABLE IF EXISTS {shadow}`))
	}
	return append(statements, `DROP TABLE rebuild_state`)
}

// withColumns fills in the placeholders of a statement that depend on the table and its columns.
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

// sql fills in the placeholders of a statement that depend on the table only.
func (p Part) sql(statement string) string {
	of := func(alias string) string { return alias + strings.Join(p.Key, ", "+alias) }
	return strings.NewReplacer("{table}", pgx.Identifier{p.Table}.Sanitize(), "{shadow}", pgx.Identifier{Shadow(p.Table)}.Sanitize(),
		"{mirror}", pgx.Identifier{"mirror_" + p.Table}.Sanitize(),
		"{key}", of(""), "{c.key}", of("c."), "{b.key}", of("b."), "{s.key}", of("s."),
		"{id}", p.Key.IDExpr(), "{after}", p.Key.KeyExpr("$1"),
		"{roles}", roles, "{grantee}", `CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END`).Replace(statement)
}
