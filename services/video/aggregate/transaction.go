package aggregate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/idempotency"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/txn"
)

// writeTimeout bounds one call of Write, with its waits and repetitions. It is not longer than the
// database's own limits for the role.
const writeTimeout = 10 * time.Second

// Writer runs the write transactions of a process. All aggregates share one Writer, so that it can
// keep one connection of the pool free for reads. Only the canary has a Writer of its own, on the
// pool of the loops.
type Writer struct {
	writer *txn.Writer
	epoch  *outbox.Epoch
	relay  Relay
}

// Relay publishes the events of a Writer. Its methods are methods of [outbox.Relay].
type Relay interface {
	Handover() *outbox.Handover
	Wake()
}

// NewWriter returns a writer on the schema that db's search_path finds. The writer hands its events
// over to relay. It wakes the relay after a commit with an event that the relay does not take. If the
// answer to a COMMIT was lost, it wakes the relay, and tells the relay that the transaction may have
// committed. relay is nil if the process has no relay.
func NewWriter(db *pgxpool.Pool, relay Relay) *Writer {
	if relay == nil {
		relay = (*outbox.Relay)(nil)
	}
	return &Writer{writer: txn.NewWriter(db), epoch: outbox.NewEpoch(db), relay: relay}
}

// WriteOptions are the caller, the idempotency keys and the precondition of a write.
type WriteOptions struct {
	Caller auth.Principal
	// Keys are the values of the header Idempotency-Key. At most one is allowed. A retry with the
	// same key within 24 hours gets the first answer.
	Keys []string
	// IfVersion makes the write fail unless it accepts the version of the row.
	IfVersion rest.Condition
}

// Result is an aggregate in the state that the write gave it. Replayed reports that an earlier
// write with the same key made that state.
type Result[T any] struct {
	Value    T
	Replayed bool
}

// Write runs do in a transaction and returns the value that do returns. name identifies the lock that
// do may have to wait for: the row that it locks or, for a new row, the idempotency key. name is empty
// if do waits for neither. Write runs do again if
// another transaction holds the lock, or if an operator has begun another epoch. Every run but the
// last has changed nothing. If an earlier request with the same key was answered, Write returns
// that answer.
//
// In this repository do is a closure in a method of a Service, such as Create, Update or Delete of
// package video. The closure locks the row if there is one, decides, and stores the new state with
// its event. The context of do ends writeTimeout after the start of Write. T embeds a Revision.
func Write[T any, P rowOf[T]](
	ctx context.Context, w *Writer, caller auth.Principal, name string, r idempotency.Request, do func(context.Context, *Tx) (T, error),
) (Result[T], error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	name = ofTenant(caller.Tenant, name)
	result, t, err := writeInEpoch(ctx, w, caller, name, r, do)
	for errors.Is(err, outbox.ErrEpochEnded) { // an operator has begun another epoch
		w.epoch.Forget()
		result, t, err = writeInEpoch(ctx, w, caller, name, r, do)
	}
	if errors.Is(err, idempotency.ErrAnswered) {
		result, err = replay[T, P](ctx, w, caller, r)
	}
	if err != nil {
		if t != nil {
			w.failed(t, err)
		}
		return Result[T]{}, fmt.Errorf("write %T: %w", result.Value, err)
	}
	switch {
	case result.Replayed:
	case t.events > 0:
		if !t.handover.Committed() {
			w.relay.Wake()
		}
	case t.present > 0:
		P(&result.Value).complete(t.Tenant, t.present)
	}
	return result, nil
}

// failed tells the relay about the events of t, whose transaction ended with err.
func (w *Writer) failed(t *Tx, err error) {
	t.handover.Failed()
	if t.events > 0 && mayHaveCommitted(err) {
		w.relay.Wake()
	}
}

// mayHaveCommitted reports whether a transaction that sent COMMIT and failed with err may have
// committed. If the database has refused a statement, it has not. If the database has ended the session,
// it may have, because the session may end behind COMMIT.
func mayHaveCommitted(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return !ok || pg.SeverityUnlocalized != "ERROR"
}

// writeInEpoch runs do in the epoch that the process believes to be the present one. t is the
// transaction of the last run of do. If do did not run, t is nil.
func writeInEpoch[T any](
	ctx context.Context, w *Writer, caller auth.Principal, name string, r idempotency.Request, do func(context.Context, *Tx) (T, error),
) (result Result[T], t *Tx, err error) {
	epoch, err := w.epoch.Present(ctx)
	if err != nil {
		return result, nil, err
	}
	err = w.writer.Write(ctx, Scope(caller), name, func(tx *txn.Tx) (err error) {
		t = &Tx{tx: tx, Tenant: caller.Tenant, Epoch: epoch, request: r, handover: w.relay.Handover(), batch: &pgx.Batch{}}
		result.Value, err = do(ctx, t)
		return err
	})
	return result, t, err
}

// replay returns the answer that another transaction has stored. It waits for no lock, so it passes no name
// to [txn.Writer.Write]. The answer gets the present epoch, which replay reads again. The present epoch is
// right even after a restore: keys and rows are restored together, so if an answer is stored, its write is
// stored, too.
func replay[T any, P rowOf[T]](ctx context.Context, w *Writer, caller auth.Principal, r idempotency.Request) (Result[T], error) {
	result := Result[T]{Replayed: true}
	w.epoch.Forget()
	epoch, err := w.epoch.Present(ctx)
	if err == nil {
		err = w.writer.Write(ctx, Scope(caller), "", func(tx *txn.Tx) error {
			return r.Replay(ctx, tx.WithCommit(), &result.Value)
		})
	}
	P(&result.Value).complete(caller.Tenant, epoch) // the stored answer has no tenant and no epoch
	return result, err
}

// rowOf is a pointer to a struct T that embeds a Revision.
type rowOf[T any] interface {
	*T
	complete(tenant string, epoch int64)
}

// Tx is the transaction of one write. Statements are queued, and each round trip sends all queued
// statements. A write makes two round trips, by calls of Lock and Store. A write that locks nothing
// makes one round trip, by a call of Append. BEGIN is sent with the first round trip, and COMMIT
// with the last (TestRoundTrips).
type Tx struct {
	tx *txn.Tx
	// Tenant owns all rows that the transaction sees and writes.
	Tenant string
	// Epoch is the owner's present epoch, as far as the process knows. If that epoch has ended,
	// Append refuses the events, and Write runs the transaction again.
	Epoch    int64
	request  idempotency.Request
	handover *outbox.Handover
	batch    *pgx.Batch
	answered idempotency.Stored
	events   int
	// present is the owner's epoch as Append has read it, or 0 if Append has not read it.
	present int64
}

// OfTenant adds the tenant to the name of a lock. Without the tenant in the name, a writer of
// another tenant could hold the lock. That writer learns that its tenant has no such row only after
// it has the lock.
func (t *Tx) OfTenant(name string) string { return ofTenant(t.Tenant, name) }

// ofTenant adds no prefix for the default tenant, so that releases from before there were tenants
// take the same locks.
func ofTenant(tenant, name string) string {
	if tenant == eventing.DefaultTenant || name == "" {
		return name
	}
	return tenant + " " + name
}

// Queue adds a statement to the next round trip.
func (t *Tx) Queue(sql string, args ...any) *pgx.QueuedQuery { return t.batch.Queue(sql, args...) }

// Lock makes one round trip. It sends the queued statements, and behind them the query for the
// answer to an earlier request with the same idempotency key. The first statement locks the row. So
// a request that has waited for the lock sees the answer that the request before it has stored. If
// there is an answer, Lock fails with [idempotency.ErrAnswered] before the caller looks at the row,
// because the earlier request may have deleted the row or changed its version.
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

// Remember queues the answer to the request under its idempotency key. A concurrent duplicate of
// this request waits at the same statement until this transaction ends.
func (t *Tx) Remember(answer any) error { return t.request.Remember(t.batch, answer) }

// Append makes the last round trip. It sends the queued statements and the events, and commits. If
// there is no event, Append reads the owner's epoch for the answer. The epoch that was read together
// with the row does not suffice, because it is from before the wait for the row's lock, and no
// append of an event checks it.
func (t *Tx) Append(ctx context.Context, events ...eventing.Event) error {
	t.events = len(events)
	if t.events == 0 {
		t.Queue(selectEpoch).QueryRow(func(row pgx.Row) error { return row.Scan(&t.present) })
	}
	return t.handover.Append(ctx, t.tx.WithCommit(), t.batch, events...)
}

// Store calls Remember and Append. If there is no event, it stores only the answer.
func (t *Tx) Store(ctx context.Context, answer any, events ...eventing.Event) error {
	if err := t.Remember(answer); err != nil {
		return err
	}
	return t.Append(ctx, events...)
}
