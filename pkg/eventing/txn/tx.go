package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/pkg/eventing/tenant"
)

// Tx is the transaction of a [Writer]. Tx sends BEGIN with the first batch. It sends COMMIT with
// the last batch, if the caller announces that batch (see [Tx.WithCommit]). So neither BEGIN nor COMMIT
// costs a round trip. If the first statement is not in a batch, BEGIN costs a round trip. Tx has no
// large objects. It also has no savepoints, because the statements of a savepoint could run after
// the end of the transaction, and outside of the tenant's scope.
type Tx struct {
	tx    pgx.Tx // nil until BEGIN has been sent
	conn  *pgx.Conn
	scope tenant.Scope
	// last is true if the next batch is the last one, and commits (see WithCommit).
	last bool
	// ended is true once the batch that commits has been sent.
	ended bool
	// committed is true once COMMIT has succeeded.
	committed bool
}

// WithCommit announces that the next batch is the last one, and returns t. t sends COMMIT with that
// batch. The transaction has committed when that batch is closed without an error. When a callback of
// that batch runs, COMMIT has already been sent, and only an error of the database can stop the
// transaction. So the callback must not return an error of its own. Statements after that batch fail with
// [pgx.ErrTxClosed].
func (t *Tx) WithCommit() pgx.Tx {
	t.last = true
	return t
}

// SendBatch sends BEGIN before the first batch, and COMMIT after the last batch, in the same round
// trip. If b is the first batch, and the connection has not prepared its statements, SendBatch sends
// BEGIN in a round trip of its own. SendBatch does not change b.
func (t *Tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.ended {
		return pgx.FailedBatchResults(b, pgx.ErrTxClosed)
	}
	b = marked(b)
	if t.tx == nil && !arePrepared(t.conn, b) {
		if err := t.sendBegin(ctx); err != nil {
			return pgx.FailedBatchResults(b, err)
		}
	}
	sent, statements := &pgx.Batch{}, statementsOf(b)
	first := t.tx == nil
	if first {
		sent.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
		t.scope.EnterLimited(sent, LockTime)
	}
	own := sent.Len()
	sent.QueuedQueries = append(sent.QueuedQueries, b.QueuedQueries...)
	if t.last {
		t.ended = true
		sent.Queue("commit").Exec(t.commitAnswered)
	}
	if !first {
		return preparing{t.tx.SendBatch(ctx, sent), t.conn, statements} // which fails if BEGIN has failed
	}
	results := t.conn.SendBatch(ctx, sent)
	t.tx = results.Tx()
	for range own {
		_, _ = results.Exec() // the caller's first statement returns the same error
	}
	return preparing{results, t.conn, statements}
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

// begin sends BEGIN alone, unless BEGIN has been sent.
func (t *Tx) begin(ctx context.Context) error {
	switch {
	case t.ended:
		return pgx.ErrTxClosed
	case t.tx != nil:
		return nil
	}
	return t.sendBegin(ctx)
}

// sendBegin sends BEGIN and the settings of the transaction, without the caller's statements.
func (t *Tx) sendBegin(ctx context.Context) error {
	last := t.last
	t.last = false
	defer func() { t.last = last }()
	if err := t.SendBatch(ctx, &pgx.Batch{}).Close(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	return nil
}

// ErrOwned is returned by Commit and Rollback, because the Writer ends the transaction, and by
// Begin, because there are no savepoints.
var ErrOwned = errors.New("the writer ends the transaction, which has no savepoints")

// Begin fails with ErrOwned.
func (*Tx) Begin(context.Context) (pgx.Tx, error) { return nil, ErrOwned }

// Commit fails with ErrOwned: see [Tx.WithCommit].
func (*Tx) Commit(context.Context) error { return ErrOwned }

// Rollback fails with ErrOwned. To roll back, the caller returns an error to [Writer.Write].
func (*Tx) Rollback(context.Context) error { return ErrOwned }

// LargeObjects are not supported: their methods panic.
func (*Tx) LargeObjects() pgx.LargeObjects { return pgx.LargeObjects{} }

// Exec implements pgx.Tx.
func (t *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.begin(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.tx.Exec(ctx, sql, args...)
}

// Query implements pgx.Tx.
func (t *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.begin(ctx); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	return t.tx.Query(ctx, sql, args...)
}

// QueryRow implements pgx.Tx.
func (t *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.begin(ctx); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).QueryRow()
	}
	return t.tx.QueryRow(ctx, sql, args...)
}

// CopyFrom implements pgx.Tx.
func (t *Tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, from pgx.CopyFromSource) (int64, error) {
	if err := t.begin(ctx); err != nil {
		return 0, err
	}
	return t.tx.CopyFrom(ctx, table, columns, from)
}

// Prepare implements pgx.Tx.
func (t *Tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	return t.tx.Prepare(ctx, name, sql)
}

// Conn returns the transaction's connection. A statement that is run on the connection itself does
// not send BEGIN. Only the methods of t send BEGIN before their first statement.
func (t *Tx) Conn() *pgx.Conn { return t.conn }

// errLastFailed is the error of end if the function do returned no error although its last batch
// failed, or was not closed. In that case end sends no further COMMIT, because that COMMIT would
// succeed although there is no transaction.
var errLastFailed = errors.New("the last batch of the transaction has failed, or was not closed")

// rollbackTime bounds a rollback, which takes one round trip. If the network is lost, the connection is of no use.
const rollbackTime = time.Second

// end ends the transaction after the function do has returned the error failed, or nil. It rolls
// back if do or its last batch failed. Otherwise it commits, unless do has already committed.
func (t *Tx) end(ctx context.Context, failed error) error {
	switch {
	case t.tx == nil || t.committed:
		return failed
	case failed == nil && !t.ended && ctx.Err() == nil:
		return t.tx.Commit(ctx)
	case failed == nil && !t.ended:
		failed = ctx.Err()
	case failed == nil:
		failed = errLastFailed
	}
	// ctx has ended if the caller has hung up. Without a rollback the connection would be closed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	_ = t.tx.Rollback(ctx) // a connection that cannot roll back is closed
	return failed
}
