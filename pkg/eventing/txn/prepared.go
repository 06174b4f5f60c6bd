package txn

import (
	"slices"

	"github.com/jackc/pgx/v5"
)

// This file remembers which statements a connection has prepared.
//
// pgx prepares a batch's statements before it sends the batch, so also before a BEGIN in the batch.
// Postgres looks up a statement's tables when it prepares the statement, and waits if a table is locked,
// as by CREATE INDEX or VACUUM FULL. Then the transaction's lock_timeout does not hold yet, and each write
// would keep its connection for the role's lock_timeout. So if a statement is not prepared, BEGIN and
// lock_timeout are sent first. That costs one or two round trips, for each connection and statement once.
//
// pgx has no method that tells which statements a connection has prepared, so this file keeps a list of
// them for each connection. After an error pgx forgets the statements of the batch that failed. Such an
// error can also come outside of a Writer. If the failed statement had the same text as a statement of a
// Writer, the list would still name that text. So the statements of a Writer have texts that no other
// statement has (mark). pgx also drops the oldest of more than 512 statements, and the services have far
// fewer.

// preparedKey is the key under which a connection's CustomData has the list of prepared statements.
const preparedKey = "example.com/lockstep/pkg/eventing/txn.prepared"

// mostPrepared is the most statements in the list of a connection. A list that is longer is replaced by
// an empty one. mostPrepared is below 512, which is pgx's own bound.
const mostPrepared = 256

func preparedOn(conn *pgx.Conn) map[string]bool {
	known, ok := conn.PgConn().CustomData()[preparedKey].(map[string]bool)
	if !ok || len(known) > mostPrepared {
		known = map[string]bool{}
		conn.PgConn().CustomData()[preparedKey] = known
	}
	return known
}

// mark ends the text of each statement of a Writer.
const mark = " /* write */"

// marked returns a copy of b with texts of its own for the statements. b stays as it is, because the
// caller may send it again in the next try, and pgx replaces the text of a statement with named
// arguments.
func marked(b *pgx.Batch) *pgx.Batch {
	own := *b
	own.QueuedQueries = make([]*pgx.QueuedQuery, len(b.QueuedQueries))
	for i, q := range b.QueuedQueries {
		own.QueuedQueries[i] = new(*q)
		own.QueuedQueries[i].SQL += mark
	}
	return &own
}

// arePrepared reports whether pgx sends b without preparing a statement before. In the modes for
// transaction poolers pgx prepares nothing in advance.
func arePrepared(conn *pgx.Conn, b *pgx.Batch) bool {
	switch mode := conn.Config().DefaultQueryExecMode; {
	case mode == pgx.QueryExecModeDescribeExec: // which describes each statement each time
		return b.Len() == 0
	case mode > pgx.QueryExecModeDescribeExec:
		return true
	}
	known := preparedOn(conn)
	return !slices.ContainsFunc(b.QueuedQueries, func(q *pgx.QueuedQuery) bool { return !known[q.SQL] })
}

// preparing are the results of a batch. Its Close notes whether pgx keeps the statements of the batch.
type preparing struct {
	pgx.BatchResults

	conn       *pgx.Conn
	statements []string
}

// statementsOf returns the texts of b's statements. It is called before pgx sends b, because pgx replaces
// the text of a statement with named arguments when it sends the statement.
func statementsOf(b *pgx.Batch) []string {
	all := make([]string, len(b.QueuedQueries))
	for i, q := range b.QueuedQueries {
		all[i] = q.SQL
	}
	return all
}

func (r preparing) Close() error {
	err := r.BatchResults.Close()
	known := preparedOn(r.conn)
	for _, sql := range r.statements {
		if err != nil {
			delete(known, sql)
		} else {
			known[sql] = true
		}
	}
	return err
}

// KeepPlans is a statement for transactions whose further statements find a few rows by an index,
// however large the table is. It changes settings of the planner until the end of the transaction. With
// them a session plans each of the further statements once, for all parameters and by indexes, whatever
// the statistics say, and keeps the plan until it ends. A kept plan costs a tenth of a new plan for each
// execution. Without these settings, a plan from when a table was empty would later read all of the table.
const KeepPlans = `
SELECT set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`
