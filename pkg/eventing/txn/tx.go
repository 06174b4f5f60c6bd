package txn

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/pkg/eventing/tenant"
)

// Tx is the transaction of a [Writer]. It spends no round trip on BEGIN, which travels with the
// first batch, and none on COMMIT if the caller names the last batch: see [Tx.Last]. A first
// statement that is not in a batch costs the round trip of BEGIN. It has no large objects and no
// savepoints: a savepoint's statements would run behind its end, and in no tenant's scope.
type Tx struct {
	tx    pgx.Tx // nil until BEGIN has been sent
	conn  *pgx.Conn
	scope tenant.Scope
	// last says that the next batch commits, ended that it has been sent.
	last, ended, committed bool
}

// Enter confines the transaction to the rows of a tenant, from its first batch on. In a transaction
// that has begun, all statements fail from then on: none runs in another scope than its caller's.
func (t *Tx) Enter(s tenant.Scope) {
	t.scope = s
	t.ended = t.ended || t.tx != nil
}

// Last returns the transaction for its last batch, which commits it: the transaction has
// committed when that batch is closed without an error. A callback of that batch must not
// return an error of its own, since COMMIT is on its way by then: what must stop the
// transaction has to be an error of the database. Statements after that batch fail with
// [pgx.ErrTxClosed].
func (t *Tx) Last() pgx.Tx {
	t.last = true
	return t
}

// SendBatch sends b behind BEGIN if it is the first batch, and in front of COMMIT if it is the last one.
func (t *Tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.ended {
		return pgx.FailedBatchResults(b, pgx.ErrTxClosed)
	}
	sent := &pgx.Batch{}
	first := t.tx == nil
	if first {
		sent.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
		t.scope.EnterLimited(sent, lockTime)
	}
	own := sent.Len()
	sent.QueuedQueries = append(sent.QueuedQueries, b.QueuedQueries...)
	if t.last {
		t.ended = true
		sent.Queue("commit").Exec(t.commitAnswered)
	}
	if !first {
		return t.tx.SendBatch(ctx, sent) // which fails if BEGIN has failed
	}
	results := t.conn.SendBatch(ctx, sent)
	t.tx = results.Tx()
	for range own {
		_, _ = results.Exec() // its error is that of the caller's first statement, too
	}
	return results
}

// commitAnswered reads the answer to COMMIT, which is ROLLBACK if a statement of an earlier
// batch has failed.
func (t *Tx) commitAnswered(tag pgconn.CommandTag) error {
	if tag.String() == "ROLLBACK" {
		return pgx.ErrTxCommitRollback
	}
	t.committed = true
	return nil
}

// begin sends BEGIN alone, unless it has been sent.
func (t *Tx) begin(ctx context.Context) error {
	switch {
	case t.ended:
		return pgx.ErrTxClosed
	case t.tx != nil:
		return nil
	}
	if err := t.SendBatch(ctx, &pgx.Batch{}).Close(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	return nil
}

// ErrOwned is the error of what a transaction leaves to its Writer, and of savepoints.
var ErrOwned = errors.New("the writer ends the transaction, which has no savepoints")

// Begin fails with ErrOwned.
func (*Tx) Begin(context.Context) (pgx.Tx, error) { return nil, ErrOwned }

// Commit fails with ErrOwned: see [Tx.Last].
func (*Tx) Commit(context.Context) error { return ErrOwned }

// Rollback fails with ErrOwned: the caller returns an error.
func (*Tx) Rollback(context.Context) error { return ErrOwned }

// LargeObjects are not supported: their methods panic.
func (*Tx) LargeObjects() pgx.LargeObjects { return pgx.LargeObjects{} }

// Exec is that of pgx.Tx.
func (t *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.begin(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.tx.Exec(ctx, sql, args...)
}

// Query is that of pgx.Tx.
func (t *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.begin(ctx); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	return t.tx.Query(ctx, sql, args...)
}

// QueryRow is that of pgx.Tx.
func (t *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.begin(ctx); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).QueryRow()
	}
	return t.tx.QueryRow(ctx, sql, args...)
}

// CopyFrom is that of pgx.Tx.
func (t *Tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, from pgx.CopyFromSource) (int64, error) {
	if err := t.begin(ctx); err != nil {
		return 0, err
	}
	return t.tx.CopyFrom(ctx, table, columns, from)
}

// Prepare is that of pgx.Tx.
func (t *Tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	return t.tx.Prepare(ctx, name, sql)
}

// Conn is the transaction's connection. BEGIN goes with the first statement of t, not of the connection.
func (t *Tx) Conn() *pgx.Conn { return t.conn }

// errLastFailed is the error of a do that returned none although its last batch failed. A
// second COMMIT would succeed without a transaction.
var errLastFailed = errors.New("the last batch of the transaction has failed, or was not closed")

// end commits the transaction if do returned no error, unless it has committed, and else rolls it back.
func (t *Tx) end(ctx context.Context, failed error) error {
	switch {
	case t.tx == nil || t.committed:
		return failed
	case failed == nil && !t.ended:
		return t.tx.Commit(ctx)
	case failed == nil:
		failed = errLastFailed
	}
	_ = t.tx.Rollback(ctx) // a connection that cannot is closed
	return failed
}
