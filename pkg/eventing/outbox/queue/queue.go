package queue

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/txn"
)

const (
	// LeaseTime is how long a lease lasts without a renewal, by the database's clock. After a
	// relay has died, its leased aggregates wait that long for another relay.
	LeaseTime = 20 * time.Second
	// Timeout bounds each statement, except those that ScanTimeout bounds. It is well below
	// LeaseTime, so the relay notices a stuck database while its leases still last.
	Timeout = 5 * time.Second
	// ScanTimeout bounds scans, claims of retries, and the reading of the backlog.
	ScanTimeout = 12 * time.Second
)

// Queue runs the statements of a relay on the outbox that db's search_path finds. The statements
// use the database's clock, because the clocks of instances differ.
type Queue struct {
	db *pgxpool.Pool
	// keepsStatements says that db's sessions keep prepared statements. Behind a transaction pooler
	// the sessions keep no prepared statements, and the configuration of db says so.
	keepsStatements bool
}

// New returns the queue of db.
func New(db *pgxpool.Pool) Queue {
	return Queue{db, db.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement}
}

// Event is a pending event.
type Event struct {
	eventing.Event
	// Refusals is how many times the broker has refused the event since an operator last
	// released it. It is the column publish_attempts, which does not count outages.
	Refusals int
	// Retry says that the event has a retry time (next_retry_at). Until the event is published,
	// ClaimRetries finds it, together with the events behind it.
	Retry bool
}

// Batch has one or more successive pending events of one aggregate. The first one is the
// aggregate's oldest pending event. Its row carries the lease of the whole batch.
type Batch []Event

// Head returns the id of the event that carries the batch's lease.
func (b Batch) Head() uuid.UUID { return b[0].ID }

// Key identifies the batch's aggregate.
func (b Batch) Key() string { return b[0].Key() }

// Tenant returns the tenant that owns the batch's aggregate.
func (b Batch) Tenant() string { return b[0].Tenant() }

// Last returns the version of the batch's last event.
func (b Batch) Last() AggregateVersion {
	e := b[len(b)-1]
	return AggregateVersion{AggregateType: e.AggregateType, AggregateID: e.AggregateID, Version: e.Version}
}

// Bytes returns the size of the batch's payloads.
func (b Batch) Bytes() int {
	n := 0
	for _, e := range b {
		n += len(e.Payload)
	}
	return n
}

// AggregateVersion is a version of an aggregate. The zero value sorts before all others.
type AggregateVersion struct {
	AggregateType, AggregateID string
	Version                    int64
}

// versionArrays has versions in the form of a statement's parameters, as one array per column.
type versionArrays struct {
	types, ids []string
	versions   []int64
}

func (v *versionArrays) add(at AggregateVersion) {
	v.types, v.ids, v.versions = append(v.types, at.AggregateType), append(v.ids, at.AggregateID), append(v.versions, at.Version)
}

// byAggregate groups events into batches. The events are sorted by aggregate and version.
// byAggregate compares type and id separately, because the concatenations of two different pairs
// can be equal.
func byAggregate(events []Event) []Batch {
	var out []Batch
	for start, i := 0, 1; i <= len(events); i++ {
		if i == len(events) || events[i].AggregateType != events[start].AggregateType || events[i].AggregateID != events[start].AggregateID {
			out = append(out, events[start:i])
			start = i
		}
	}
	return out
}

// genericPlan is a statement that sets up the planner for the next statement. The settings apply
// to the next statement only, because the transaction ends with that statement.
const genericPlan = txn.KeepPlans + `, set_config('enable_sort', 'off', true)`

// settlePlan is genericPlan for a settlement, with a time limit. The server ends the settlement after
// Timeout, even if the process of the relay is gone. A settlement that is executed later might come
// after another relay has taken over. It might mark a retry as published without having seen an event
// that was committed meanwhile behind the retry. No relay would look for that event.
const settlePlan = genericPlan + `, set_config('statement_timeout', '5s', true)`

// settlePlanShortWait is for a statement with an alternative that skips locked rows. The wait for a
// lock is longer than the few milliseconds for which a claim locks its rows.
const settlePlanShortWait = settlePlan + `, set_config('lock_timeout', '100ms', true)`

// query runs one statement and calls read with its rows. If the sessions keep prepared statements,
// query runs the statement setup before it, in the same transaction.
func (q Queue) query(ctx context.Context, setup, sql string, args []any, read func(pgx.Rows) error) error {
	if !q.keepsStatements {
		rows, _ := q.db.Query(ctx, sql, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...) // rows has the error
		defer rows.Close()
		return read(rows)
	}
	b := &pgx.Batch{}
	b.Queue(setup)
	b.Queue(sql, args...).Query(read)
	return q.db.SendBatch(ctx, b).Close()
}

// queryRow is query for a statement that always returns one row. It scans the row into to.
func (q Queue) queryRow(ctx context.Context, setup, sql string, args []any, to ...any) error {
	return q.query(ctx, setup, sql, args, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, to, func() error { return nil })
		return err
	})
}

// quick returns a statement that Timeout bounds. The session does not keep the plan of such a
// statement. It does keep the plans of statements that query runs.
func (q Queue) quick(name, sql string, args ...any) bounded.Statement {
	return bounded.Pool{DB: q.db, Limit: Timeout}.Statement(name, sql, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
}
