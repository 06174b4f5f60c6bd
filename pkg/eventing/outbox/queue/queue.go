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
	// LeaseTime is how long a lease lasts without a renewal, by the database's clock. The
	// aggregates of a relay that died wait that long for another relay.
	LeaseTime = 20 * time.Second
	// Timeout bounds each statement. It is well below the lease, so that the relay notices
	// a stuck database while the lease still holds.
	Timeout = 5 * time.Second
	// ScanTimeout bounds the statements of loops other than the claims.
	ScanTimeout = 12 * time.Second
)

// Queue holds every statement that a relay runs on the outbox that db's search_path finds.
// Times are the database's, because instances' clocks differ.
type Queue struct {
	db *pgxpool.Pool
	// keepsStatements says that db's sessions keep prepared statements. Behind a
	// transaction pooler they do not, and db's configuration says so.
	keepsStatements bool
}

// New returns the queue of db.
func New(db *pgxpool.Pool) Queue {
	return Queue{db, db.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement}
}

// Event is a pending event.
type Event struct {
	eventing.Event
	// Rejections is how many times the broker has refused the event since an operator last
	// released it: the column publish_attempts, which counts nothing else.
	Rejections int
	// Retry says that the event has a retry time (next_retry_at). Until it is published,
	// ClaimRetries finds it, and the events behind it with it.
	Retry bool
}

// Batch is successive pending events of one aggregate, at least one. The first is the
// aggregate's oldest pending event, and carries the lease of them all.
type Batch []Event

// Head is the event that carries the batch's lease.
func (b Batch) Head() uuid.UUID { return b[0].ID }

// Key identifies the batch's aggregate.
func (b Batch) Key() string { return b[0].Key() }

// Tenant owns the batch's aggregate.
func (b Batch) Tenant() string { return b[0].Tenant() }

// Last is the version of the batch's last event.
func (b Batch) Last() AggregateVersion {
	e := b[len(b)-1]
	return AggregateVersion{AggregateType: e.AggregateType, AggregateID: e.AggregateID, Version: e.Version}
}

// Bytes is the memory of the batch's payloads.
func (b Batch) Bytes() int {
	n := 0
	for _, e := range b {
		n += len(e.Payload)
	}
	return n
}

// AggregateVersion is a version of an aggregate. The zero value is before all others.
type AggregateVersion struct {
	AggregateType, AggregateID string
	Version                    int64
}

// versionArrays are versions as statements take them.
type versionArrays struct {
	types, ids []string
	versions   []int64
}

func (p *versionArrays) add(at AggregateVersion) {
	p.types, p.ids, p.versions = append(p.types, at.AggregateType), append(p.ids, at.AggregateID), append(p.versions, at.Version)
}

// byAggregate groups events, which come by aggregate in version order. It compares both
// halves of an aggregate's name: joined, two names can look alike.
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

// genericPlan is for the next statement alone, since the transaction ends with it.
const genericPlan = txn.KeepPlans + `, set_config('enable_sort', 'off', true)`

// genericPlanShortWait is genericPlan for a statement that has a second way around locked
// rows. A claim has its rows locked for some milliseconds.
const genericPlanShortWait = genericPlan + `, set_config('lock_timeout', '100ms', true)`

// query runs one statement after setup, which prepares its session, and has read read the rows.
func (q Queue) query(ctx context.Context, setup, sql string, args []any, read func(pgx.Rows) error) error {
	if !q.keepsStatements {
		rows, _ := q.db.Query(ctx, sql, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...) // its error is that of rows
		defer rows.Close()
		return read(rows)
	}
	b := &pgx.Batch{}
	b.Queue(setup)
	b.Queue(sql, args...).Query(read)
	return q.db.SendBatch(ctx, b).Close()
}

// queryRow is query for a statement that always has one row.
func (q Queue) queryRow(ctx context.Context, setup, sql string, args []any, to ...any) error {
	return q.query(ctx, setup, sql, args, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, to, func() error { return nil })
		return err
	})
}

// quick is a statement within Timeout whose plan the session need not keep, unlike query's.
func (q Queue) quick(name, sql string, args ...any) bounded.Statement {
	return bounded.Pool{DB: q.db, Limit: Timeout}.Statement(name, sql, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
}
