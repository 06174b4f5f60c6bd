package rebuild

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/operator/audit"
)

// exchange is the statements that exchange the table $1 with its shadow $2, in their order:
// names, indexes by their definitions, triggers and views.
const exchange = `
	WITH index AS (
	  SELECT indrelid, indexrelid::regclass::text AS name, {definition} AS definition,
	         row_number() OVER (PARTITION BY indrelid, {definition} ORDER BY indexrelid) AS n
	    FROM pg_index AS i WHERE indrelid IN ($1::text::regclass, $2::text::regclass)
	)
	SELECT statement FROM (
	  SELECT 1 AS step, format('DROP TRIGGER %I ON %s', tgname, $1::text::regclass) AS statement
	    FROM pg_trigger WHERE tgrelid = $1::text::regclass AND NOT tgisinternal
	  UNION ALL
	  SELECT 2, format('ALTER TABLE %I RENAME TO rebuild_swap; ALTER TABLE %I RENAME TO %1$I; ALTER TABLE rebuild_swap RENAME TO %2$I',
	                   $1::text, $2::text)
	  UNION ALL
	  SELECT 3, format('ALTER INDEX %s RENAME TO rebuild_swap; ALTER INDEX %s RENAME TO %1$s; ALTER INDEX rebuild_swap RENAME TO %2$s',
	                   served.name, shadow.name)
	    FROM index AS served JOIN index AS shadow USING (definition, n)
	   WHERE served.indrelid = $1::text::regclass AND shadow.indrelid = $2::text::regclass
	  UNION ALL
	  SELECT 4, pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = $1::text::regclass AND NOT tgisinternal
	  UNION ALL
	  SELECT DISTINCT 5, format('CREATE OR REPLACE VIEW %s%s AS %s', c.oid::regclass, ' WITH (' || array_to_string(reloptions, ', ') || ')',
	                            rtrim(pg_get_viewdef(c.oid), ';'))
	    FROM pg_depend AS d JOIN pg_rewrite AS w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
	    JOIN pg_class AS c ON c.oid = w.ev_class
	   WHERE d.refobjid = $1::text::regclass AND c.relkind = 'v'
	) AS s ORDER BY step`

// swap exchanges the tables of the rebuild s in one transaction, and enters a phase. Nothing is read or written
// while it holds its locks, which takes milliseconds. It waits for each lock for a moment only,
// because readers queue behind it: then it gives way to them, and tries again.
func (r *Rebuild) swap(ctx context.Context, by audit.Actor, action string, s State, to Phase) error {
	if err := r.carryAll(ctx); err != nil {
		return since(err)
	}
	err := r.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.update(ctx, tx, `UPDATE rebuild_state SET phase = $3, changed_at = clock_timestamp()`, to); err != nil {
			return err
		}
		if err := r.lock(ctx, tx); err != nil {
			return err
		}
		for _, p := range r.parts {
			if err := p.swap(ctx, tx); err != nil {
				return err
			}
		}
		return audit.Write(ctx, tx, action, by, r.subjects...)
	})
	if err != nil {
		return fmt.Errorf("exchange the tables: %w", since(err))
	}
	return nil
}

// since adds to an ErrShape what an operator does about it, once there is a rebuild.
func since(err error) error {
	if errors.Is(err, ErrShape) {
		return fmt.Errorf("a migration ran since the begin: finish this rebuild, and begin another one: %w", err)
	}
	return err
}

// lock locks the served tables first, like the transactions that the mirrors are part of.
func (r *Rebuild) lock(ctx context.Context, tx pgx.Tx) error {
	tables := slices.Concat(r.tables, r.shadows)
	if err := calm(ctx, tx, tables); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `LOCK TABLE `+identifiers(tables)+` IN ACCESS EXCLUSIVE MODE`)
	return err
}

// calm waits until no vacuum, ANALYZE or CREATE INDEX CONCURRENTLY works on the tables, and
// lets none begin before the transaction ends. Without it an autovacuum would outlive all
// attempts: Postgres ends it for a transaction that waits longer than lockTime.
func calm(ctx context.Context, tx pgx.Tx, tables []string) error {
	_, err := tx.Exec(ctx, fmt.Sprintf(`
		SET LOCAL lock_timeout = %d; LOCK TABLE %s IN SHARE UPDATE EXCLUSIVE MODE; SET LOCAL lock_timeout = %d`,
		calmTime.Milliseconds(), identifiers(tables), lockTime.Milliseconds()))
	return err
}

func identifiers(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = pgx.Identifier{name}.Sanitize()
	}
	return strings.Join(quoted, ", ")
}

func (p Part) swap(ctx context.Context, tx pgx.Tx) error {
	if err := p.sameShape(ctx, tx); err != nil {
		return err
	}
	return execAll(ctx, tx, strings.ReplaceAll(exchange, "{definition}", definition), p.Table, Shadow(p.Table))
}
