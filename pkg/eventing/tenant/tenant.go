// Package tenant confines the statements of a request to the rows of one tenant, with
// Postgres' row-level security.
//
// A service has two roles. Its loops and commands (the relay, the consumer, repairs) run as the
// role that the process connects as. The policy of that role spans tenants. A request runs as the
// request role of [migrate.Schema], which sees the rows of one tenant, and no row if no tenant is
// set. [Scope.Enter] sets the role and the tenant for a transaction, and the database resets both
// at the end of the transaction. So no connection keeps the role or the tenant, even behind a
// pooler that lends a connection for one transaction. Enter is a statement in the request's first
// batch, and so costs no round trip.
//
// The package protects against statements that forget the tenant. It does not protect against
// statements that set another role or tenant, because the process is allowed to set both.
//
// [migrate.Schema]: https://pkg.go.dev/example.com/lockstep/pkg/eventing/migrate#Schema
package tenant

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/bounded"
)

// Scope determines the rows that statements see and change. Statements in the zero Scope see no
// rows, and fail.
type Scope struct {
	role, tenant string
	all          bool
}

// All returns the scope of the rows of all tenants. Its statements run as the role that the process
// connects as. All is for replicas, loops and commands.
func All() Scope { return Scope{all: true} }

// One returns the scope of the rows of one tenant. requestRole is the request role of the schema.
func One(requestRole, tenant string) Scope { return Scope{role: requestRole, tenant: tenant} }

// Enter queues the change of role and tenant on b. b is the first batch of a transaction, or a
// batch outside of a transaction. Postgres runs a batch outside of a transaction as one
// transaction.
func (s Scope) Enter(b *pgx.Batch) {
	if !s.all {
		b.Queue(`SELECT set_config('role', $1, true), set_config('eventing.tenant', $2, true)`, s.role, s.tenant)
	}
}

// EnterLimited does the same as Enter, and also limits how long a statement of the transaction
// waits for a lock. It does both with one statement, because each statement costs 7 % of the
// throughput of small transactions (7,515 transactions/s without such a statement, 7,000 with one).
func (s Scope) EnterLimited(b *pgx.Batch, lockTimeout time.Duration) {
	limit := fmt.Sprint(lockTimeout.Milliseconds())
	if s.all {
		b.Queue(`SELECT set_config('lock_timeout', $1, true)`, limit)
		return
	}
	b.Queue(`SELECT set_config('lock_timeout', $1, true), set_config('role', $2, true), set_config('eventing.tenant', $3, true)`,
		limit, s.role, s.tenant)
}

// ReadTime is the time limit of a read of one row by its key, or of one page of rows, such as
// [Scope.Read]. A connection may be lost without an error, for example in a failover of the database.
// Without the limit the read would then wait for as long as its request may last.
const ReadTime = 5 * time.Second

// Read runs a query in a transaction of its own, in one round trip. read collects the
// rows. If the query takes longer than [ReadTime], Read returns an error that wraps [bounded.ErrLimit].
func (s Scope) Read(ctx context.Context, db *pgxpool.Pool, read func(pgx.Rows) error, query string, args ...any) error {
	return bounded.Run(ctx, ReadTime, func(ctx context.Context) error {
		if s.all {
			rows, _ := db.Query(ctx, query, args...) // rows has the error too
			defer rows.Close()
			return read(rows)
		}
		return s.readBehind(ctx, db, &pgx.Batch{}, read, query, args)
	})
}

// ReadPage does the same as Read, for a query that reads a page of rows by an index, in the order of the page. Without
// statistics, for example after pg_upgrade, the planner expects few rows. It might then read all rows of a tenant or of a
// user, and sort them, for each page. So it has to do without bitmaps of rows. A query of an index that needs bitmaps, such as GIN,
// is for ReadReplanned.
func (s Scope) ReadPage(ctx context.Context, db *pgxpool.Pool, read func(pgx.Rows) error, query string, args ...any) error {
	return bounded.Run(ctx, ReadTime, func(ctx context.Context) error {
		b := &pgx.Batch{}
		b.Queue(`SELECT set_config('enable_bitmapscan', 'off', true)`)
		return s.readBehind(ctx, db, b, read, query, args)
	})
}

// ReadReplanned does the same as Read, but without the limit ReadTime, and makes Postgres plan the query
// for its arguments each time. For a query of Read, Postgres may keep one plan for all arguments after
// five executions. Planning costs tenths of a millisecond. It pays off if the best plan differs with the
// arguments, as for a search for a part of a text.
func (s Scope) ReadReplanned(ctx context.Context, db *pgxpool.Pool, read func(pgx.Rows) error, query string, args ...any) error {
	b := &pgx.Batch{}
	b.Queue(`SELECT set_config('plan_cache_mode', 'force_custom_plan', true)`)
	return s.readBehind(ctx, db, b, read, query, args)
}

// readBehind runs a query behind the statements of b.
func (s Scope) readBehind(
	ctx context.Context, db *pgxpool.Pool, b *pgx.Batch, read func(pgx.Rows) error, query string, args []any,
) error {
	s.Enter(b)
	var refused error
	b.Queue(query, args...).Query(func(rows pgx.Rows) error {
		// pgx would take the error of read for an error of the batch, forget the statements, and
		// prepare and plan them again for the next batch. Such an error is common, because a reader
		// that comes too early finds no row.
		refused = read(rows)
		return nil
	})
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	return refused
}
