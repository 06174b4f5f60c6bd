package txn

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/tenant"
)

// notes is a pool with one connection to a database with a table of notes.
func notes(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := openWith(t, pgtest.New(t).Admin, "1")
	pgtest.Exec(t, pool, `CREATE TABLE notes (id int PRIMARY KEY)`)
	return pool
}

func count(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	return pgtest.Value[int](t, pool, `SELECT count(*) FROM notes`)
}

func insert(ids ...int) *pgx.Batch {
	b := &pgx.Batch{}
	for _, id := range ids {
		b.Queue(`INSERT INTO notes VALUES ($1)`, id)
	}
	return b
}

// COMMIT travels behind the last statements: one of them that fails must stop it, and must not
// cost the connection.
func TestAFailedLastBatchChangesNothing(t *testing.T) {
	t.Parallel()
	pool := notes(t)
	w := NewWriter(pool)
	for name, ids := range map[string][]int{"the first statement": {1, 1, 2}, "the last one": {1, 2, 2}} {
		if err := w.Write(t.Context(), tenant.All(), "", func(tx *Tx) error {
			return tx.WithCommit().SendBatch(t.Context(), insert(ids...)).Close()
		}); err == nil {
			t.Errorf("%s violates the key, and there is no error", name)
		}
		if err := w.Write(t.Context(), tenant.All(), "", func(tx *Tx) error {
			if err := tx.SendBatch(t.Context(), insert(3)).Close(); err != nil {
				return err
			}
			return tx.WithCommit().SendBatch(t.Context(), insert(ids...)).Close()
		}); err == nil {
			t.Errorf("%s of the second batch violates the key, and there is no error", name)
		}
	}
	if n := count(t, pool); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if n := pool.Stat().NewConnsCount(); n != 1 {
		t.Errorf("%d connections were made", n)
	}
}

// BEGIN has no result that the caller sees, whether or not the connection has prepared the caller's statement.
func TestTheFirstResultIsTheCallers(t *testing.T) {
	t.Parallel()
	w := NewWriter(notes(t))
	for range 2 {
		var n int
		if err := w.Write(t.Context(), tenant.All(), "", func(tx *Tx) error {
			b := &pgx.Batch{}
			b.Queue(`SELECT 7`)
			results := tx.SendBatch(t.Context(), b)
			return errors.Join(results.QueryRow().Scan(&n), results.Close())
		}); err != nil || n != 7 {
			t.Errorf("%d, %v", n, err)
		}
	}
}

// A caller may send one batch in each try.
func TestABatchIsSentAgain(t *testing.T) {
	t.Parallel()
	pool := notes(t)
	w := NewWriter(pool)
	const upsert = `INSERT INTO notes VALUES (@id) ON CONFLICT (id) DO NOTHING`
	b := &pgx.Batch{}
	b.Queue(upsert, pgx.NamedArgs{"id": 1})
	for range 3 {
		if err := w.Write(t.Context(), tenant.All(), "", func(tx *Tx) error { return tx.WithCommit().SendBatch(t.Context(), b).Close() }); err != nil {
			t.Error(err)
		}
	}
	var prepared int
	err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'INSERT INTO notes%'`).Scan(&prepared)
	if err != nil || prepared != 1 || b.QueuedQueries[0].SQL != upsert || count(t, pool) != 1 {
		t.Errorf("%d statements prepared, %q (%v)", prepared, b.QueuedQueries[0].SQL, err)
	}
}

// A caller that has passed over a failed statement is told that its COMMIT was a rollback.
func TestTheLastBatchOfAFailedTransaction(t *testing.T) {
	t.Parallel()
	pool := notes(t)
	err := NewWriter(pool).Write(t.Context(), tenant.All(), "", func(tx *Tx) error {
		if err := tx.SendBatch(t.Context(), insert(1, 1)).Close(); err == nil {
			t.Error("the second row violates the key, and there is no error")
		}
		return tx.WithCommit().SendBatch(t.Context(), &pgx.Batch{}).Close()
	})
	if !errors.Is(err, pgx.ErrTxCommitRollback) || count(t, pool) != 0 {
		t.Errorf("%v, %d rows", err, count(t, pool))
	}
}

func TestTheLastBatchCommits(t *testing.T) {
	t.Parallel()
	pool := notes(t)
	err := NewWriter(pool).Write(t.Context(), tenant.All(), "", func(tx *Tx) error {
		if err := tx.WithCommit().SendBatch(t.Context(), insert(1)).Close(); err != nil {
			return err
		}
		if status := tx.Conn().PgConn().TxStatus(); status != 'I' {
			t.Errorf("the connection's state is %c, want that of no transaction", status)
		}
		return nil
	})
	if err != nil || count(t, pool) != 1 {
		t.Errorf("%v, %d rows", err, count(t, pool))
	}
}

// A transaction that does not begin with a batch has BEGIN all the same, and all of pgx.Tx.
func TestAnyStatementMayBeTheFirst(t *testing.T) {
	t.Parallel()
	pool := notes(t)
	const sql = `INSERT INTO notes VALUES (1) RETURNING id`
	for name, first := range map[string]func(context.Context, *Tx) error{
		"Exec": func(ctx context.Context, tx *Tx) error {
			_, err := tx.Exec(ctx, sql)
			return err
		},
		"Query": func(ctx context.Context, tx *Tx) error {
			rows, _ := tx.Query(ctx, sql)
			_, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
			return err
		},
		"QueryRow": func(ctx context.Context, tx *Tx) error {
			var id int
			return tx.QueryRow(ctx, sql).Scan(&id)
		},
		"CopyFrom": func(ctx context.Context, tx *Tx) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"notes"}, []string{"id"}, pgx.CopyFromRows([][]any{{1}}))
			return err
		},
	} {
		for _, failure := range []error{context.Canceled, nil} {
			err := NewWriter(pool).Write(t.Context(), tenant.All(), "", func(tx *Tx) error {
				if err := first(t.Context(), tx); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				return failure
			})
			want := 0
			if failure == nil {
				want = 1
			}
			if n := count(t, pool); !errors.Is(err, failure) || n != want {
				t.Errorf("%s, ending with %v: %v, %d rows, want %d", name, failure, err, n, want)
			}
		}
		pgtest.Exec(t, pool, `TRUNCATE notes`)
	}
}

// A transaction whose caller hangs up between two statements is rolled back, and its connection goes on.
func TestATransactionOfAHangUpIsRolledBack(t *testing.T) {
	t.Parallel()
	pool := notes(t)
	before := pool.Stat().NewConnsCount()
	ctx, hangUp := context.WithCancel(t.Context())
	err := NewWriter(pool).Write(ctx, tenant.All(), "", func(tx *Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO notes VALUES (1)`); err != nil {
			t.Error(err)
		}
		hangUp()
		_, err := tx.Exec(ctx, `INSERT INTO notes VALUES (2)`)
		return err
	})
	if n := count(t, pool); !errors.Is(err, context.Canceled) || n != 0 {
		t.Errorf("%v, %d rows, want none", err, n)
	}
	if n := pool.Stat().NewConnsCount(); n != before {
		t.Errorf("%d connections were made after it, want none", n-before)
	}
}

// A transaction whose caller hangs up during the last statement is rolled back, too.
func TestATransactionOfALateHangUpIsRolledBack(t *testing.T) {
	t.Parallel()
	pool := notes(t)
	before := pool.Stat().NewConnsCount()
	ctx, hangUp := context.WithCancel(t.Context())
	err := NewWriter(pool).Write(ctx, tenant.All(), "", func(tx *Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO notes VALUES (1)`)
		hangUp() // as if the statement had gone on after its context
		return err
	})
	if n := count(t, pool); !errors.Is(err, context.Canceled) || n != 0 {
		t.Errorf("%v, %d rows, want none", err, n)
	}
	if n := pool.Stat().NewConnsCount(); n != before {
		t.Errorf("%d connections were made after it, want none", n-before)
	}
}

// A transaction is in its tenant's scope from the first statement to the last, and the connection is
// not afterwards. In the zero Scope no statement runs.
func TestATransactionIsInItsScope(t *testing.T) {
	t.Parallel()
	pool := notes(t)
	role := pgtest.Value[string](t, pool, `SELECT current_user`)
	const settings = `SELECT concat_ws(' ', current_setting('role'), current_setting('eventing.tenant', true), current_setting('lock_timeout'))`
	w := NewWriter(pool)
	err := w.Write(t.Context(), tenant.One(role, "acme"), "", func(tx *Tx) error {
		for range 2 {
			var is string
			if err := tx.QueryRow(t.Context(), settings).Scan(&is); err != nil || is != role+" acme 100ms" {
				t.Errorf("in the transaction: %q, %v", is, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var is string
	if err := pool.QueryRow(t.Context(), settings).Scan(&is); err != nil || is != "none  0" {
		t.Errorf("after it: %q, %v", is, err)
	}
	err = w.Write(t.Context(), tenant.Scope{}, "", func(tx *Tx) error {
		return tx.SendBatch(t.Context(), insert(1)).Close()
	})
	if n := count(t, pool); err == nil || n != 0 {
		t.Errorf("in no scope: %v, %d rows", err, n)
	}
}
