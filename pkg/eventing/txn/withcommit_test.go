package txn

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/tenant"
)

var errCaller = errors.New("the caller's")

// After the last batch there is no transaction: a further statement must not run on the
// connection outside of one.
func TestNothingRunsAfterTheLastBatch(t *testing.T) {
	t.Parallel()
	const sql = `INSERT INTO notes VALUES (7)`
	pool := notes(t)
	for name, late := range map[string]func(context.Context, *Tx) error{
		"SendBatch": func(ctx context.Context, tx *Tx) error { return tx.SendBatch(ctx, insert(7)).Close() },
		"Exec":      func(ctx context.Context, tx *Tx) error { _, err := tx.Exec(ctx, sql); return err },
		"Query": func(ctx context.Context, tx *Tx) error {
			rows, _ := tx.Query(ctx, sql)
			rows.Close()
			return rows.Err()
		},
		"QueryRow": func(ctx context.Context, tx *Tx) error {
			var id int
			return tx.QueryRow(ctx, sql+` RETURNING id`).Scan(&id)
		},
		"CopyFrom": func(ctx context.Context, tx *Tx) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"notes"}, []string{"id"}, pgx.CopyFromRows([][]any{{7}}))
			return err
		},
	} {
		for _, batches := range []int{1, 2} {
			err := NewWriter(pool).Write(t.Context(), tenant.All(), "", func(tx *Tx) error {
				for id := range batches - 1 {
					if err := tx.SendBatch(t.Context(), insert(id+2)).Close(); err != nil {
						return err
					}
				}
				if err := tx.WithCommit().SendBatch(t.Context(), insert(1)).Close(); err != nil {
					return err
				}
				if err := late(t.Context(), tx); !errors.Is(err, pgx.ErrTxClosed) {
					t.Errorf("%s after %d batches: %v, want that the transaction has ended", name, batches, err)
				}
				return errCaller
			})
			if n := count(t, pool); n != batches || !errors.Is(err, errCaller) {
				t.Errorf("%s after %d batches: %d rows, %v", name, batches, n, err)
			}
			pgtest.Exec(t, pool, `TRUNCATE notes`)
		}
	}
}

// Nothing runs behind a first batch that cannot be prepared.
func TestNothingRunsBehindAnUnpreparedBatch(t *testing.T) {
	t.Parallel()
	for _, last := range []bool{false, true} {
		pool := notes(t)
		err := NewWriter(pool).Write(t.Context(), tenant.All(), "", func(tx *Tx) error {
			b := &pgx.Batch{}
			b.Queue(`SELECT no_such_function()`)
			if err := tx.SendBatch(t.Context(), b).Close(); err == nil {
				t.Error("no error")
			}
			if last {
				tx.WithCommit()
			}
			if err := tx.SendBatch(t.Context(), insert(1)).Close(); err == nil {
				t.Error("a statement has run")
			}
			return errCaller
		})
		if n := count(t, pool); n != 0 || !errors.Is(err, errCaller) {
			t.Errorf("%d rows, %v", n, err)
		}
	}
}

// A transaction that has committed must not run again, whatever its caller meets afterwards.
func TestACommittedTransactionRunsOnce(t *testing.T) {
	t.Parallel()
	pool, runs := notes(t), 0
	err := NewWriter(pool).Write(t.Context(), tenant.All(), "a", func(tx *Tx) error {
		runs++
		if err := tx.WithCommit().SendBatch(t.Context(), insert(runs)).Close(); err != nil {
			return err
		}
		return &pgconn.PgError{Code: "55P03"}
	})
	if n := count(t, pool); n != 1 || runs != 1 || !IsLockTimeout(err) || errors.Is(err, ErrLocked) {
		t.Errorf("%d runs, %d rows, %v", runs, n, err)
	}
}

// The error of the last batch cannot be dropped: its transaction may not have committed.
func TestTheLastBatchsErrorIsNotDropped(t *testing.T) {
	t.Parallel()
	pool := notes(t)
	pgtest.Exec(t, pool, `CREATE TABLE answers (note int REFERENCES notes DEFERRABLE INITIALLY DEFERRED)`)
	err := NewWriter(pool).Write(t.Context(), tenant.All(), "", func(tx *Tx) error {
		if err := tx.SendBatch(t.Context(), insert(1)).Close(); err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(`INSERT INTO answers VALUES (2)`) // COMMIT fails
		if err := tx.WithCommit().SendBatch(t.Context(), b).Close(); err == nil {
			t.Error("no error of the constraint")
		}
		return nil
	})
	if n := count(t, pool); n != 0 || err == nil {
		t.Errorf("%d rows, %v", n, err)
	}
}

// A savepoint's statements would run after the transaction, and in no tenant's scope; a commit
// would be one that the writer does not know of.
func TestTheWriterOwnsTheTransaction(t *testing.T) {
	t.Parallel()
	pool := notes(t)
	for _, begun := range []bool{false, true} {
		err := NewWriter(pool).Write(t.Context(), tenant.All(), "", func(tx *Tx) error {
			if begun {
				if err := tx.SendBatch(t.Context(), insert(1)).Close(); err != nil {
					return err
				}
			}
			if inner, err := tx.Begin(t.Context()); inner != nil || !errors.Is(err, ErrOwned) {
				t.Errorf("a savepoint: %v", err)
			}
			if err := tx.Commit(t.Context()); !errors.Is(err, ErrOwned) {
				t.Errorf("commit: %v", err)
			}
			if err := tx.Rollback(t.Context()); !errors.Is(err, ErrOwned) {
				t.Errorf("rollback: %v", err)
			}
			return errCaller
		})
		if n := count(t, pool); n != 0 || !errors.Is(err, errCaller) {
			t.Errorf("%d rows, %v", n, err)
		}
	}
}
