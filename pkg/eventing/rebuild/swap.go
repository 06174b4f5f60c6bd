package rebuild

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/operator/audit"
)

// exchange exchanges the table with the name {served} and its shadow with the name {shadow}. It exchanges the
// names of the tables, and of indexes with the same definition, and creates triggers and views again. It is one
// statement, which reads the catalogs and changes them, so that it takes one round trip.
//
//go:embed exchange.sql
var exchange string

// unchanged fails with serialization_failure if a table and its shadow differ. It runs under the exclusive locks. Most
// changes have to wait since calm, but the creation of a materialized view or of a function, and GRANT, have not. The
// next attempt then finds the difference, and returns ErrShape.
//
//go:embed unchanged.sql
var unchanged string

// swap exchanges the tables of the rebuild s in one transaction, and enters the phase to. While
// swap holds its exclusive locks, nothing is read from the tables or written to them. That takes
// milliseconds and one round trip. swap waits for each exclusive lock only for lockTime, because readers
// queue behind swap. If swap does not get the lock in that time, it lets the readers pass, and tries again.
func (r *Rebuild) swap(ctx context.Context, by audit.Actor, action string, s State, to Phase) error {
	if err := r.carryAll(ctx); err != nil {
		return since(err)
	}
	err := r.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.update(ctx, tx, `UPDATE rebuild_state SET phase = $3, changed_at = clock_timestamp()`, to); err != nil {
			return err
		}
		if err := calm(ctx, tx, slices.Concat(r.tables, r.shadows)); err != nil {
			return err
		}
		var checks, exchanges []string
		for _, p := range r.parts {
			if err := p.sameShape(ctx, tx); err != nil {
				return err
			}
			checks, exchanges = append(checks, p.unchanged()), append(exchanges, p.exchange())
		}
		if err := audit.Write(ctx, tx, action, by, r.subjects...); err != nil {
			return err
		}
		return r.change(ctx, tx, r.shadows, append(checks, exchanges...))
	})
	if err != nil {
		return fmt.Errorf("exchange the tables: %w", since(err))
	}
	return nil
}

// since adds advice for an operator to an ErrShape that comes after the begin of a rebuild. It returns every
// other error unchanged.
func since(err error) error {
	if errors.Is(err, ErrShape) {
		return fmt.Errorf("a migration ran since the begin: finish this rebuild, and begin another one: %w", err)
	}
	return err
}

// change takes exclusive locks on the served tables and on the tables in shadows, and runs the statements. The
// caller has called calm before, and commits next: while the locks are held, reads and events wait for each
// round trip. change locks the served tables first, and then the shadows. A transaction that writes to a served
// table locks the tables in the same order, because the mirror then writes to the shadow.
func (r *Rebuild) change(ctx context.Context, tx pgx.Tx, shadows, statements []string) error {
	lock := `LOCK TABLE ` + identifiers(slices.Concat(r.tables, shadows)) + ` IN ACCESS EXCLUSIVE MODE`
	_, err := tx.Exec(ctx, strings.Join(append([]string{lock}, statements...), ";\n"))
	return err
}

// calm waits until no vacuum, ANALYZE or CREATE INDEX CONCURRENTLY works on the tables, and lets
// none begin before the transaction ends. Most other changes of the shape of the tables wait until then, too. Without
// calm an autovacuum would outlive all attempts, because Postgres ends an autovacuum only for a transaction that waits
// longer than lockTime.
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

// exchange returns the statement that exchanges the table and its shadow.
func (p Part) exchange() string {
	return strings.NewReplacer("{definition}", definition,
		"{served}", literal(p.Table), "{shadow}", literal(Shadow(p.Table))).Replace(exchange)
}

// unchanged returns the statement that compares the shapes of the table and its shadow.
func (p Part) unchanged() string {
	of := func(table string) string { return strings.ReplaceAll(shapeSQL(), "$1", literal(table)) }
	return strings.NewReplacer("{served}", of(p.Table), "{shadow}", of(Shadow(p.Table))).Replace(unchanged)
}

// literal returns a table's name, which has no backslash, as a constant of SQL.
func literal(name string) string { return "'" + strings.ReplaceAll(name, "'", "''") + "'" }
