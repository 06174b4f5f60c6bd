package aggregate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/idempotency"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/txn"
)

// writeTimeout ends a transaction no later than the database's own limits for
// the role do.
const writeTimeout = 10 * time.Second

// Writer runs the write transactions of a process. All aggregates share one, since it
// leaves one connection of the pool to reads.
type Writer struct {
	db     *pgxpool.Pool
	writer *txn.Writer
	epoch  *outbox.Epoch
	wake   func() // outbox.Relay.Wake
}

// NewWriter returns a writer on the schema that db's search_path finds. wake is called
// after each commit that left an event in the outbox; the process passes the relay's
// [outbox.Relay.Wake].
func NewWriter(db *pgxpool.Pool, wake func()) *Writer {
	return &Writer{db: db, writer: txn.NewWriter(db), epoch: outbox.NewEpoch(db), wake: wake}
}

// WriteOptions are the caller, the idempotency keys and the precondition of a write.
type WriteOptions struct {
	Caller auth.Principal
	// Keys are the values of Idempotency-Key, of which there may be one: a
	// retry with it within 24 hours gets the first answer.
	Keys []string
	// IfVersion makes the write fail unless the row has this version; 0 accepts any
	// version or none, rest.Any any existing row.
	IfVersion int64
}

// Result is an aggregate in the state that the write gave it. If Replayed, an earlier write
// with the same key gave it that state.
type Result[T any] struct {
	Value    T
	Replayed bool
}

// Write runs do in a transaction and returns the value that do has stored. name is a name
// for the row that do locks; it is empty if other transactions cannot hold it. do may run
// several times, since another transaction may hold the row: all runs but the last have
// changed nothing. If the request has its answer already, Write returns that answer.
//
// In this repository do is a closure in a method of a Service, such as Create, Update or Delete
// of package video: it locks the row if there is one, decides, and stores the new
// state with its event. do gets a context that ends with writeTimeout. T embeds a Revision.
func Write[T any, P rowOf[T]](
	ctx context.Context, w *Writer, caller auth.Principal, name string, r idempotency.Request, do func(context.Context, *Tx) (T, error),
) (Result[T], error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	name = ofTenant(caller.Tenant, name)
	result, t, err := writeInEpoch(ctx, w, caller, name, r, do)
	for errors.Is(err, outbox.ErrEpochEnded) { // an operator has begun another one since
		w.epoch.Forget()
		result, t, err = writeInEpoch(ctx, w, caller, name, r, do)
	}
	if errors.Is(err, idempotency.ErrAnswered) {
		result, err = replay[T, P](ctx, w, r, t)
	}
	if err != nil {
		return Result[T]{}, fmt.Errorf("write %T: %w", result.Value, err)
	}
	if t.events > 0 && !result.Replayed {
		w.wake()
	}
	return result, nil
}

// writeInEpoch is Write in the epoch that is taken for the present one. t is the transaction of
// the last run; it is nil if there was none.
func writeInEpoch[T any](
	ctx context.Context, w *Writer, caller auth.Principal, name string, r idempotency.Request, do func(context.Context, *Tx) (T, error),
) (result Result[T], t *Tx, err error) {
	epoch, err := w.epoch.Present(ctx)
	if err != nil {
		return result, nil, err
	}
	err = w.writer.Write(ctx, name, func(tx *txn.Tx) (err error) {
		t = newTx(tx, caller, epoch, r)
		result.Value, err = do(ctx, t)
		return err
	})
	return result, t, err
}

// replay returns the answer that another transaction has stored, which t may have read.
// Its epoch is read again, which is safe: keys and rows are restored together, so an answer that
// is stored implies its write.
func replay[T any, P rowOf[T]](ctx context.Context, w *Writer, r idempotency.Request, t *Tx) (Result[T], error) {
	result := Result[T]{Replayed: true}
	w.epoch.Forget()
	epoch, err := w.epoch.Present(ctx)
	if err == nil {
		err = r.Replay(ctx, w.db, t.answered, &result.Value)
	}
	P(&result.Value).complete(t.Tenant, epoch) // the stored answer has neither
	return result, err
}

// rowOf is a pointer to a struct T that embeds a Revision.
type rowOf[T any] interface {
	*T
	complete(tenant string, epoch int64)
}

// Tx is the transaction of one write. Statements are queued, and each of its round trips
// sends them all. A write makes two round trips, Lock and Store, or Append alone if it has
// nothing to lock: BEGIN travels with the first, COMMIT with the last (TestRoundTrips).
type Tx struct {
	tx *txn.Tx
	// Tenant owns all rows that the transaction sees and writes.
	Tenant string
	// Epoch is the present one as far as the process knows. Append refuses events of any
	// other, and Write runs the transaction again.
	Epoch    int64
	request  idempotency.Request
	batch    *pgx.Batch
	answered idempotency.Stored
	events   int
}

func newTx(tx *txn.Tx, caller auth.Principal, epoch int64, r idempotency.Request) *Tx {
	tx.Enter(Scope(caller))
	return &Tx{tx: tx, Tenant: caller.Tenant, Epoch: epoch, request: r, batch: &pgx.Batch{}}
}

// OfTenant is a name for locks. Writers of another tenant must not be able to hold it: they
// learn that there is no such row only when they have it.
func (t *Tx) OfTenant(name string) string { return ofTenant(t.Tenant, name) }

// ofTenant gives the names of the default tenant no prefix, so that releases of before tenants
// take the same locks.
func ofTenant(tenant, name string) string {
	if tenant == eventing.DefaultTenant || name == "" {
		return name
	}
	return tenant + " " + name
}

// Queue adds a statement to the next round trip.
func (t *Tx) Queue(sql string, args ...any) *pgx.QueuedQuery { return t.batch.Queue(sql, args...) }

// Lock is a round trip: it sends the queued statements, of which the first locks the row,
// and asks for the answer to an earlier request with the same idempotency key. The lock
// comes first: a request that waited for it then sees the answer that the request before
// it has stored. If there is an answer, Lock fails with [idempotency.ErrAnswered] before
// the caller looks at the row: this very request may have deleted the row or moved its
// version.
func (t *Tx) Lock(ctx context.Context) error {
	t.request.Recall(t.batch, &t.answered)
	locking := t.batch
	t.batch = &pgx.Batch{}
	if err := t.tx.SendBatch(ctx, locking).Close(); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if t.answered.Found() {
		return idempotency.ErrAnswered
	}
	return nil
}

// Remember queues the answer to the request under its idempotency key. A concurrent
// duplicate of this request waits there.
func (t *Tx) Remember(answer any) error { return t.request.Remember(t.batch, answer) }

// Append is the last round trip: it sends the queued statements and the events, and commits.
func (t *Tx) Append(ctx context.Context, events ...eventing.Event) error {
	t.events = len(events)
	return outbox.Append(ctx, t.tx.Last(), t.batch, events...)
}

// Store is Remember and Append. Without an event, nothing but the answer is stored.
func (t *Tx) Store(ctx context.Context, answer any, events ...eventing.Event) error {
	if err := t.Remember(answer); err != nil {
		return err
	}
	return t.Append(ctx, events...)
}
