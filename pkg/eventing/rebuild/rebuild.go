package rebuild

import (
	"context"
	"errors"
	"fmt"
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
	// lockTime is how long a transaction waits for a lock. Events and reads queue behind the
	// rebuild for no longer, and Postgres, which looks for deadlocks after a second, aborts
	// none of theirs.
	lockTime = 200 * time.Millisecond
	// calmTime is how long a transaction waits for the end of a vacuum or the like on a table:
	// longer than deadlock_timeout, of a second, after which Postgres ends an autovacuum that is in
	// the way. Events and reads do not queue behind this lock.
	calmTime = 3 * time.Second
	// shortTime bounds a transaction, tableTime one that locks tables, and longTime one that reads
	// or cleans a table.
	shortTime, tableTime, longTime = 5 * time.Second, 30 * time.Second, 15 * time.Minute
	// attempts take a minute.
	attempts = 60

	undefinedTable = "42P01"
)

// again is the pause between two attempts, in which nothing waits behind the rebuild.
var again = backoff.Policy{Base: 100 * time.Millisecond, Cap: 2 * time.Second}

var (
	// ErrBusy means that another process works on the rebuild.
	ErrBusy = errors.New("another process rebuilds the read model")
	// ErrMigrating means that a migration of the schema runs: its end is the time to begin.
	ErrMigrating = errors.New("a migration of the schema runs: begin when it has ended")
	// ErrPhase means that the rebuild's phase does not allow the action.
	ErrPhase = errors.New("not in this phase of a rebuild")
)

// Part is one table of a read model.
type Part struct {
	// Table is its name, and Key its primary key. It has the columns epoch and version. Rows come
	// to the shadow in another order than to the table: a unique index besides the key's must be of
	// values that never move from one row to another, such as the id of the last event. With such an
	// index a transaction may fail with unique_violation that writes a row while the rebuild copies
	// it, since ON CONFLICT waits for the key's index only: it succeeds when it is tried again.
	Table string
	Key   reconcile.Key
	// Shadow fills the shadow. Before and After compare with the owner: Before the shadow, and
	// After the served table.
	Shadow        backfill.Filler
	Before, After reconcile.Comparison
}

// Rebuild is the rebuild of a read model.
type Rebuild struct {
	db    *pgxpool.Pool
	parts []Part
	after string
	// tables and shadows are the names, and subjects the tables for the audit table.
	tables, shadows []string
	subjects        []audit.Subject
}

// New returns the rebuild of a read model of these parts in db. db connects as the owner of the
// schema, past a transaction pooler, and prepares its sessions with Session. after is a statement that runs after
// each exchange, outside of its locks, and again after a crash: it brings up to date what
// triggers have counted of the rows. It may be empty.
func New(db *pgxpool.Pool, after string, parts ...Part) *Rebuild {
	r := &Rebuild{db: db, parts: parts, after: after}
	for _, p := range parts {
		r.tables, r.shadows = append(r.tables, p.Table), append(r.shadows, Shadow(p.Table))
		r.subjects = append(r.subjects, audit.Subject{AggregateType: p.Shadow.Type()})
	}
	return r
}

// Session prepares a session for a rebuild in a schema: the schema alone is on the search_path,
// no transaction waits for a lock longer than a moment, and settings of the role or of the
// database bound no statement, which has a limit of its own.
func Session(schema string) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SELECT set_config('search_path', $1, false), set_config('lock_timeout', $2, false),
			set_config('statement_timeout', '0', false), set_config('idle_in_transaction_session_timeout', '0', false),
			set_config('default_transaction_isolation', 'read committed', false)`,
			pgx.Identifier{schema}.Sanitize(), fmt.Sprint(lockTime.Milliseconds()))
		return err
	}
}

// Rollback exchanges the tables back. The table of before has had all events since, so no read
// gets older. It reads both tables first, for rows that only the new one has, and again if there
// are such rows. It may be repeated.
func (r *Rebuild) Rollback(ctx context.Context, by audit.Actor) error {
	return r.alone(ctx, func() error {
		s, err := r.State(ctx)
		switch {
		case err != nil:
			return err
		case s.Phase != Checking && s.Phase != Done && s.Phase != RolledBack:
			return fmt.Errorf("%w: the tables were not exchanged", ErrPhase)
		case s.Phase != RolledBack:
			if err := r.swap(ctx, by, "rebuild rollback", s, RolledBack); err != nil {
				return err
			}
		}
		return r.runAfter(ctx)
	})
}

// Finish removes the tables that are not served, and ends the rebuild in any phase. While the
// served rows are not checked yet, it requires unchecked: then rows may stay that differ from
// their owner's. If the statement after the exchange fails, it removes the tables, and returns
// that error.
func (r *Rebuild) Finish(ctx context.Context, by audit.Actor, unchecked bool) error {
	return r.alone(ctx, func() error {
		s, err := r.State(ctx)
		var after error
		switch {
		case err != nil:
			return err
		case s.Phase == None:
			return fmt.Errorf("%w: there is nothing to remove", ErrPhase)
		case s.Phase == Checking && !unchecked:
			return fmt.Errorf("%w: the new rows are not checked yet", ErrPhase)
		case s.Phase == Checking, s.Phase == RolledBack: // which may have died before
			after = r.runAfter(ctx)
		}
		err = r.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			if err := r.lock(ctx, tx); err != nil {
				return err
			}
			if err := r.drop(ctx, tx, s); err != nil {
				return err
			}
			return audit.Write(ctx, tx, "rebuild finish", by, r.subjects...)
		})
		if err != nil {
			err = fmt.Errorf("remove the shadow tables: %w", err)
		}
		return errors.Join(err, after)
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

// alone runs do while no other process does. The lock ends with its session, so with the
// process. A process that has lost the session goes on: two at once do the same work twice, and
// the second one to move the rebuild on gets ErrPhase: see State.update.
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
		// The server ends the session in any case, but later than Close returns.
		_, _ = conn.Exec(ending, `SELECT pg_advisory_unlock_all()`)
		_ = conn.Close(ending)
	}()
	return do(conn)
}

// inTx runs do in a transaction that locks tables, again until it gets its locks.
func (r *Rebuild) inTx(ctx context.Context, do func(ctx context.Context, tx pgx.Tx) error) error {
	return r.retry(ctx, tableTime, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error { return do(ctx, tx) })
	})
}

// retry runs do, each time within a limit, until it gets the locks that it needs, and the owner
// answers.
func (r *Rebuild) retry(ctx context.Context, within time.Duration, do func(ctx context.Context) error) (err error) {
	for attempt := range again.Attempts(ctx) {
		err = bounded.Run(ctx, within, do)
		if err == nil || !passing(err) || attempt == attempts {
			return err
		}
	}
	return err
}

// lockErrors are lock_not_available and deadlock_detected.
var lockErrors = map[string]bool{"55P03": true, "40P01": true}

// passing reports whether err is a lock that was not got, or an owner that does not answer, or
// answers from too long ago.
func passing(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	away := errors.Is(err, consistency.ErrOwnerUnavailable) && !eventing.IsPermanent(err)
	return away || errors.Is(err, backfill.ErrReplica) || errors.Is(err, txn.ErrLocked) || ok && lockErrors[pg.Code]
}
