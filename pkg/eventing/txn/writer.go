// Package txn runs the write transactions of requests.
//
// A lock that another transaction holds must delay only the requests that want the same lock.
// [Writer] ensures this.
package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/instrument"
	"example.com/lockstep/pkg/eventing/tenant"
)

const (
	// LockTime is how long a transaction of a Writer waits for a lock. It holds a connection meanwhile.
	// Healthy writers take far less. Another session that waits for the lock of a whole table delays all
	// writers of that table. That session should give up its wait before LockTime, so that no request has to
	// try again.
	LockTime = 100 * time.Millisecond
	// lockBudget is how long a request may go on trying in all. It covers the waits for locks and
	// for turns in all tries of the request, and the pauses between the tries.
	lockBudget = 2 * time.Second
)

var (
	// ErrLocked is wrapped by the error of a write that gave up, because another transaction holds
	// the rows that it would change, or rows of the writes before it. Nothing was changed.
	ErrLocked = errors.New("another transaction holds the rows")
	// ErrBusy is the error of a write that gave up, because the writes before it took too long and met
	// no lock: the database is slow, or there are too many writes. Nothing was changed.
	ErrBusy = errors.New("the writes before it take too long")
)

// lockRetry is the pause between two tries, in which no connection is held.
var lockRetry = backoff.Policy{Base: 100 * time.Millisecond, Cap: 500 * time.Millisecond}

// Writer runs the write transactions of requests. It bounds the number of connections that wait for
// locks of other transactions. The bounds hold whether one row, every row or a whole table is locked:
//
//   - Of the requests for one key, only one at a time is in the database. The other requests
//     wait for that one without a connection.
//   - A transaction waits for a lock for 100 ms. Then it ends, the connection is free, and the
//     request tries again after a pause. After 2 s in all the request fails with [ErrLocked].
//     If the last try for a key met a lock, at most eight requests wait for that key, and
//     further requests fail at once. The same holds for all requests without a key together.
//   - Writes leave one connection of the pool to reads. A request waits for its turn for 2 s at
//     most. Then it fails with [ErrLocked] if requests that it waited for have met a lock in this
//     time, and otherwise with [ErrBusy].
//
// Between requests of different processes, only the lock itself keeps the order.
type Writer struct {
	db   *pgxpool.Pool
	gate gate
	// turns has one element for each request that has a turn. Only such a request takes a connection. Its
	// capacity is one less than the connections of the pool.
	turns  chan struct{}
	budget time.Duration // lockBudget; tests have more
	locked metric.Int64Counter
	busy   metric.Int64Counter
}

// NewWriter returns a writer on db. A pool has one writer, because the bounds hold for the requests
// of one writer.
func NewWriter(db *pgxpool.Pool) *Writer {
	meter := instrument.For("example.com/lockstep/pkg/eventing/txn")
	w := &Writer{
		db: db, gate: gate{keys: map[string]*place{}},
		turns: make(chan struct{}, max(1, db.Config().MaxConns-1)), budget: lockBudget,
		locked: meter.Counter("database.locked", "{request}",
			"Requests that failed since another transaction held what they would change"),
		busy: meter.Counter("database.busy", "{request}",
			"Requests that failed since the writes before them took too long, and met no lock"),
	}
	instrument.Begin(w.locked)
	instrument.Begin(w.busy)
	return w
}

// Pool returns the pool of the writer.
func (w *Writer) Pool() *pgxpool.Pool { return w.db }

// Write runs the function do in a transaction in the scope: all its statements see and change the rows of the
// scope only, and fail in the zero Scope. The isolation level is Read Committed, for which the
// services are written, regardless of the role's default. key is a name for the rows that do locks.
// key is empty if other transactions cannot hold any of these rows. They may still hold a table. do may
// run several times. Every run except the last one has changed nothing. If do does not commit with
// [Tx.WithCommit], Write commits.
//
// In this repository two packages call Write. Package aggregate of the service video runs the
// closure of a Create, Update, Put or Delete. Package projection writes states that it has fetched
// from an owner.
func (w *Writer) Write(ctx context.Context, scope tenant.Scope, key string, do func(*Tx) error) error {
	r := request{scope, do}
	began := time.Now()
	patient, cancel := context.WithDeadline(ctx, began.Add(w.budget))
	defer cancel()
	if key == "" { // the requests without a key do not wait for each other
		p, ok := w.gate.join(key, began.Add(-w.budget))
		if !ok {
			return w.gaveUp(ctx, ErrLocked)
		}
		defer w.gate.quit(key, p)
		return w.tryAgain(patient, ctx, began, p, r)
	}
	p, err := w.gate.enter(patient, key, began, w.budget)
	if err != nil {
		return w.gaveUp(ctx, err)
	}
	defer w.gate.leave(key, p)
	return w.tryAgain(patient, ctx, began, p, r)
}

// request is the work of one call of Write.
type request struct {
	scope tenant.Scope
	do    func(*Tx) error
}

// tryAgain tries until a try meets no lock, or until the context patient ends. p is the place of the
// request's key.
func (w *Writer) tryAgain(patient, ctx context.Context, began time.Time, p *place, r request) (err error) {
	for range lockRetry.Attempts(patient) {
		select {
		case w.turns <- struct{}{}:
		case <-patient.Done():
			return w.gaveUp(ctx, w.gate.reason(nil, began))
		}
		var locked bool
		if locked, err = w.try(ctx, p, r); !locked {
			return err
		}
	}
	return w.gaveUp(ctx, fmt.Errorf("%w: %w", ErrLocked, err))
}

// try takes a connection, and runs the transaction. Then it gives back the turn that the request has.
// locked is true if the transaction met a lock and has changed nothing. If the last batch of do has
// committed the transaction, locked is false, whatever do did afterwards.
func (w *Writer) try(ctx context.Context, p *place, r request) (locked bool, err error) {
	w.gate.beginTurn(p)
	defer func() {
		w.gate.endTurn(p, locked) // first, so that the next caller with the turn knows of the lock
		<-w.turns
	}()
	conn, err := w.db.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	t := &Tx{conn: conn.Conn(), scope: r.scope}
	// A panic leaves the transaction open. Release then closes the connection.
	err = t.end(ctx, r.do(t))
	return !t.committed && IsLockTimeout(err), err
}

// IsLockTimeout reports whether err means that a statement gave up its wait for another transaction's
// lock (lock_timeout).
func IsLockTimeout(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "55P03" // lock_not_available
}

// gaveUp returns the error of a request that was not served. If ctx, the request's own context, has
// ended, the error is the error of ctx. Otherwise it is err, which wraps ErrLocked or is ErrBusy.
func (w *Writer) gaveUp(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		return ended
	}
	if errors.Is(err, ErrLocked) {
		w.locked.Add(ctx, 1)
	} else {
		w.busy.Add(ctx, 1)
	}
	return err
}
