package rebuild

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backfill"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/reconcile"
	"example.com/lockstep/pkg/eventing/txn"
)

const (
	// lockTime is how long a transaction of the rebuild waits for a lock. So events and reads queue behind
	// the rebuild for no longer than lockTime. Postgres looks for deadlocks only after a second of waiting,
	// when the rebuild has given up. So Postgres aborts no transaction of an event or a read because of the
	// rebuild.
	lockTime = 200 * time.Millisecond
	// calmTime is how long a transaction waits for the end of a vacuum or a similar command on a table. It is
	// longer than deadlock_timeout (a second), after which Postgres ends an autovacuum that is in the way.
	// Events and reads do not queue behind the lock that it waits for.
	calmTime = 3 * time.Second
	// shortTime bounds a transaction that neither locks a table nor reads all of it.
	shortTime = 5 * time.Second
	// tableTime bounds a transaction that locks tables.
	tableTime = 30 * time.Second
	// longTime bounds a transaction that reads or cleans a table.
	longTime = 15 * time.Minute
	// attempts bounds the attempts of retry. With their pauses they take a minute.
	attempts = 60

	undefinedTable = "42P01"
)

// again is the pause between two attempts. During the pause no event or read waits behind the
// rebuild.
var again = backoff.Policy{Base: 100 * time.Millisecond, Cap: 2 * time.Second}

var (
	// ErrBusy means that another process works on the rebuild.
	ErrBusy = errors.New("another process rebuilds the read model")
	// ErrMigrating means that a migration of the schema is running, or that an index is created outside of
	// the migrations. Begin the rebuild when that has ended.
	ErrMigrating = errors.New("a migration of the schema runs, or creates an index: begin when it has ended")
	// ErrPhase means that the rebuild's phase does not allow the action.
	ErrPhase = errors.New("not in this phase of a rebuild")
)

// Part is one table of a read model.
type Part struct {
	// Table is the table's name. The table has the columns epoch and version. Rows come to the shadow in
	// another order than to the table. So each unique index besides the key must be on values that never
	// move from one row to another, such as the id of the last event. With such an index, a transaction
	// that writes a row while the rebuild copies the row may fail with unique_violation, because ON CONFLICT
	// waits for the key's index only. The transaction succeeds when it is tried again.
	Table string
	// Key is the table's primary key.
	Key reconcile.Key
	// Shadow fills the shadow.
	Shadow backfill.Filler
	// Before compares the shadow with the owner, before the exchange.
	Before reconcile.Comparison
	// After compares the served table with the owner, after the exchange.
	After reconcile.Comparison
}

// Rebuild is the rebuild of a read model.
type Rebuild struct {
	db    *pgxpool.Pool
	parts []Part
	// after is the statement that runs after each exchange (see New).
	after string
	// tables are the names of the served tables.
	tables []string
	// shadows are the names of the shadows, in the order of tables.
	shadows []string
	// subjects name the parts in the entries of the audit table.
	subjects []audit.Subject
}

// New returns the rebuild of a read model that consists of parts, in db. db connects as the owner
// of the schema, without a transaction pooler, and prepares its sessions with Session. after is a
// statement that corrects the counters that triggers of the tables maintain. The statement runs
// after each exchange, outside of the exchange's locks, and again after a crash. after may be
// empty.
func New(db *pgxpool.Pool, after string, parts ...Part) *Rebuild {
	r := &Rebuild{db: db, parts: parts, after: after}
	for _, p := range parts {
		r.tables, r.shadows = append(r.tables, p.Table), append(r.shadows, Shadow(p.Table))
		r.subjects = append(r.subjects, audit.Subject{AggregateType: p.Shadow.Type()})
	}
	return r
}

// Session returns a function that prepares a session for a rebuild in schema. The schema alone is
// on the search_path, and no transaction waits for a lock longer than lockTime. Timeouts of the
// role or of the database are turned off, because each statement has a limit of its own, and the session
// that holds the lock of the rebuild is idle meanwhile. The server ends the session of a client that is gone,
// or that stands still in a transaction (bounded.LostClient).
func Session(schema string) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SELECT set_config('search_path', $1, false), set_config('lock_timeout', $2, false),
			set_config('statement_timeout', '0', false),
			set_config('default_transaction_isolation', 'read committed', false), set_config('row_security', 'on', false),
			`+bounded.LostClient+`,
			(SELECT count(set_config(name, '0', false)) FROM pg_settings WHERE name IN ('idle_session_timeout', 'transaction_timeout'))`,
			pgx.Identifier{schema}.Sanitize(), fmt.Sprint(lockTime.Milliseconds()))
		return err
	}
}

// Rollback exchanges the tables back. The mirror has copied all events since the exchange into the
// former table, so no read gets older. Before the exchange, Rollback reads both tables for rows
// that only the new table has. If there are such rows, it copies them and reads both tables again.
// Rollback may be repeated.
func (r *Rebuild) Rollback(ctx context.Context, by audit.Actor) error {
	return r.alone(ctx, func() error {
		s, err := r.State(ctx)
		switch {
		case err != nil:
			return err
		case s.RollbackError() != nil:
			return s.RollbackError()
		case s.Phase != RolledBack:
			if err := r.swap(ctx, by, "rebuild rollback", s, RolledBack); err != nil {
				return err
			}
		}
		return r.runAfter(ctx)
	})
}

// Finish removes the tables that are not served, and ends the rebuild in any phase. In the phase
// Checking, when served rows may still differ from their owner's, Finish requires that unchecked is
// true. If the statement after (see New) fails, Finish removes the tables all the same, and returns the
// error of the statement. It is no error if a person has removed a table or a trigger by hand. Without the
// shadow, the mirror's triggers on the served table make all events of its type fail. Finish ends that,
// because it removes the triggers.
func (r *Rebuild) Finish(ctx context.Context, by audit.Actor, unchecked bool) error {
	return r.alone(ctx, func() error {
		s, err := r.State(ctx)
		var after error
		switch {
		case err != nil:
			return err
		case s.FinishError(unchecked) != nil:
			return s.FinishError(unchecked)
		case s.Phase == Checking, s.Phase == RolledBack: // the process may have died before it ran the statement
			after = r.runAfter(ctx)
		}
		err = r.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			left, err := lines(ctx, tx, `SELECT name FROM unnest($1::text[]) AS name WHERE to_regclass(quote_ident(name)) IS NOT NULL`, r.shadows)
			if err != nil {
				return err
			}
			if err := s.update(ctx, tx, `DELETE FROM rebuild_state`); err != nil {
				return err
			}
			if err := calm(ctx, tx, slices.Concat(r.tables, left)); err != nil {
				return err
			}
			if err := audit.Write(ctx, tx, "rebuild finish", by, r.subjects...); err != nil {
				return err
			}
			return r.change(ctx, tx, left, r.drop())
		})
		if err != nil {
			return errors.Join(fmt.Errorf("remove the shadow tables: %w", err), after)
		}
		if after != nil { // a repetition finds no rebuild
			return fmt.Errorf("the rebuild is finished, and its counters may be wrong until they are reconciled: %w", after)
		}
		return nil
	})
}

func (r *Rebuild) runAfter(ctx context.Context) error {
	if r.after == "" {
		return nil
	}
	err := r.retry(ctx, longTime, func(ctx context.Context) error {
		_, err := r.db.Exec(ctx, r.after)
		return err
	})
	if err != nil {
		return fmt.Errorf("after the exchange: %w", err)
	}
	return nil
}

// alone runs do under a lock that admits one process. The lock's key stays as it is in older releases,
// because a process of an older release may run at the same time. The lock ends with its session, and so
// with the process. A process that has lost its session goes on, so two processes may do the same work.
// Then the first of them to change the phase succeeds, and the other one gets ErrPhase; see State.update.
func (r *Rebuild) alone(ctx context.Context, do func() error) error {
	return r.session(ctx, func(conn *pgx.Conn) error {
		var got bool
		err := bounded.Run(ctx, shortTime, func(ctx context.Context) error {
			return conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(hashtext('lockstep rebuild ' || current_schema()))`).Scan(&got)
		})
		switch {
		case err != nil:
			return fmt.Errorf("lock the rebuild: %w", err)
		case !got:
			return ErrBusy
		}
		return do()
	})
}

// session runs do with a session of its own, which ends afterwards.
func (r *Rebuild) session(ctx context.Context, do func(conn *pgx.Conn) error) error {
	connecting, cancel := context.WithTimeout(ctx, shortTime)
	defer cancel()
	pooled, err := r.db.Acquire(connecting)
	if err != nil {
		return fmt.Errorf("open a session: %w", err)
	}
	conn := pooled.Hijack()
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shortTime)
		defer cancel()
		// Close returns before the server ends the session, so the lock is released first.
		_, _ = conn.Exec(ending, `SELECT pg_advisory_unlock_all()`)
		_ = conn.Close(ending)
	}()
	return do(conn)
}

// inTx runs do in a transaction that locks tables. If the transaction does not get a lock, inTx tries
// again (see retry).
func (r *Rebuild) inTx(ctx context.Context, do func(ctx context.Context, tx pgx.Tx) error) error {
	return r.retry(ctx, tableTime, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error { return do(ctx, tx) })
	})
}

// retry runs do until do gets the locks that it needs and the owner answers, at most attempts
// times (see passing). Any other error ends retry. within limits each attempt.
func (r *Rebuild) retry(ctx context.Context, within time.Duration, do func(ctx context.Context) error) (err error) {
	for attempt := range again.Attempts(ctx) {
		err = bounded.Run(ctx, within, do)
		if err == nil || !passing(err) || attempt == attempts {
			return err
		}
	}
	return err
}

// passingCodes are lock_not_available, deadlock_detected, serialization_failure (see unchanged), and
// idle_in_transaction_session_timeout, which has ended a transaction while this process stood still. Nothing of these
// transactions was committed.
var passingCodes = map[string]bool{"55P03": true, "40P01": true, "40001": true, "25P03": true}

// passing reports whether err may pass: a lock was not granted, a table has changed meanwhile, this process stood
// still, other writes take long, the owner does not answer, or its answer is from too long ago.
func passing(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	away := errors.Is(err, consistency.ErrOwnerUnavailable) && !eventing.IsPermanent(err)
	gaveUp := errors.Is(err, txn.ErrLocked) || errors.Is(err, txn.ErrBusy)
	return away || gaveUp || errors.Is(err, backfill.ErrReplica) || ok && passingCodes[pg.Code]
}
