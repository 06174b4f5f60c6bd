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

// exchange selects the statements that exchange table $1 with its shadow $2, in their order. They
// exchange the names of the tables, and of indexes with the same definition, and create triggers
// and views again.
//
//go:embed exchange.sql
var exchange string

// swap exchanges the tables of the rebuild s in one transaction, and enters the phase to. While
// swap holds its exclusive locks, nothing is read from the tables or written to them. That takes
// milliseconds. swap waits for each exclusive lock only for lockTime, because readers queue behind
// swap. If swap does not get the lock in that time, it lets the readers pass, and tries again.
func (r *Rebuild) swap(ctx context.Context, by audit.Actor, action string, s State, to Phase) error {
	if err := r.carryAll(ctx); err != nil {
		return since(err)
	}
	err := r.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.update(ctx, tx, `UPDATE rebuild_state SET phase = $3, changed_at = clock_timestamp()`, to); err != nil {
			return err
		}
		if err := r.lock(ctx, tx, r.shadows); err != nil {
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

// since adds advice for an operator to an ErrShape that comes after the begin of a rebuild. It returns every
// other error unchanged.
func since(err error) error {
	if errors.Is(err, ErrShape) {
		return fmt.Errorf("a migration ran since the begin: finish this rebuild, and begin another one: %w", err)
	}
	return err
}

// lock locks the served tables first, and then the tables in shadows. A transaction that writes to a served
// table locks the tables in the same order, because the mirror then writes to the shadow.
func (r *Rebuild) lock(ctx context.Context, tx pgx.Tx, shadows []string) error {
	tables := slices.Concat(r.tables, shadows)
	if err := calm(ctx, tx, tables); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `LOCK TABLE `+identifiers(tables)+` IN ACCESS EXCLUSIVE MODE`)
	return err
}

// calm waits until no vacuum, ANALYZE or CREATE INDEX CONCURRENTLY works on the tables, and lets
// none begin before the transaction ends. Without calm an autovacuum would outlive all attempts,
// because Postgres ends an autovacuum only for a transaction that waits longer than lockTime.
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
