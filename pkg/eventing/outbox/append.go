package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/pkg/eventing"
)

// MaxPayloadBytes is the largest payload that Append accepts. It is far below Pub/Sub's limit of
// 10 MB, because a relay holds a few thousand events in memory.
const MaxPayloadBytes = 256 << 10

// The errors of Append, in addition to errors about invalid events.
var (
	// ErrPayloadTooLarge means that a payload is over MaxPayloadBytes. Larger data belongs
	// in object storage, and the event carries the address of the data. This is the claim
	// check pattern (Hohpe and Woolf, "Enterprise Integration Patterns", 2003).
	ErrPayloadTooLarge = errors.New("payload too large for an event")
	// ErrVersionTaken means that the aggregate already has an event with the version of an appended
	// event. Two transactions have started from the same state of the aggregate. The caller must roll
	// back its transaction.
	ErrVersionTaken = errors.New("the aggregate has an event of this version")
	// ErrVersionSkipped means that the aggregate has no event with the version before that of an
	// appended event. The owner has lost a version, or has written a version without an event.
	ErrVersionSkipped = errors.New("the aggregate has no event of the version before")
	// ErrSourceAnswered means that the aggregate already has an event that answers the same
	// source event. The transaction is a repetition. The caller rolls it back and treats it as
	// done.
	ErrSourceAnswered = errors.New("the source event is answered already")
	// ErrIDTaken means that the outbox already has an event with the id of an appended event. The
	// caller must roll back its transaction.
	ErrIDTaken = errors.New("the outbox has an event of this id")
)

// Append writes events to the outbox within tx, in one statement. The events become visible to the
// relay when tx commits. If tx rolls back, there are no events.
//
// The parameter with may be nil. Append sends the statements that are queued on with in the same
// round trip, before the events. An owner queues the statement that changes its row, so that the
// row and the event together cost one round trip. The callbacks of these statements have run when
// Append returns. Append does not change with.
//
// If an event is invalid, Append sends nothing, and the error names the field. The first event of
// an aggregate may have any version. Each later event must have the next version, even if the
// newest event was published long ago, because the purge never deletes that event. Append
// also refuses a second event of an aggregate for the same source event, and an event of an epoch
// that is not the present one. After any error the caller rolls back. An event without a trace
// context gets the trace context of ctx.
func Append(ctx context.Context, tx pgx.Tx, with *pgx.Batch, events ...eventing.Event) error {
	if err := check(events); err != nil {
		return fmt.Errorf("append event: %w", err)
	}
	return write(ctx, tx, with, created(ctx, events), nil)
}

// write sends the statements of with and the events, in one round trip. l is the lease of a single
// event, or nil.
func write(ctx context.Context, tx pgx.Tx, with *pgx.Batch, events []eventing.Event, l *lease) error {
	b := copied(with)
	switch {
	case len(events) == 0:
	case l != nil:
		insertLeased(b, events[0], l)
	case len(events) == 1:
		insertOne(b, events[0])
	default:
		first, err := inSequence(events)
		if err != nil {
			return fmt.Errorf("append event: %w", err)
		}
		insertMany(b, events, first)
	}
	if b.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("append event: %w", named(err))
	}
	return nil
}

// copied returns a copy of b, or an empty batch if b is nil. Append adds the event to the copy. The
// caller may send b again, in another transaction, and b must not contain the event then.
func copied(b *pgx.Batch) *pgx.Batch {
	if b == nil {
		return &pgx.Batch{}
	}
	own := *b
	own.QueuedQueries = make([]*pgx.QueuedQuery, len(b.QueuedQueries))
	for i, q := range b.QueuedQueries {
		own.QueuedQueries[i] = new(*q)
	}
	return &own
}

func check(events []eventing.Event) error {
	for _, e := range events {
		if err := e.Validate(); err != nil {
			return err
		}
		if len(e.Payload) > MaxPayloadBytes {
			return fmt.Errorf("payload: %d bytes, at most %d: %w", len(e.Payload), MaxPayloadBytes, ErrPayloadTooLarge)
		}
	}
	return nil
}

// Codes of errors that SQL functions of this repository raise. Their class is LS, for Lockstep: Postgres and
// the SQL standard use no class with an L or an S in front. The list leaves out LS003, which
// outbox_refuses catches itself, and LS005, the code of idempotency keys.
const (
	// skipped is raised by outbox_refuses (migration 00203 of the outbox) if the version before is
	// missing. If the version is taken, outbox_refuses raises the error of the unique key.
	skipped = "LS002"
	// epochEnded is raised by outbox_refuses_epoch (migration 00207 of the outbox).
	epochEnded = "LS004"
)

// named wraps the database's error for a violated key or rule of the outbox in the matching error
// variable of this package. Other errors, such as errors of the caller's own statements, stay
// unchanged.
func named(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return err
	case pg.Code == skipped:
		return fmt.Errorf("%w: %w", ErrVersionSkipped, err)
	case pg.Code == epochEnded:
		return fmt.Errorf("%w: %w", ErrEpochEnded, err)
	case pg.Code != "23505" || pg.TableName != "outbox":
		return err
	}
	switch pg.ConstraintName {
	case "outbox_pkey":
		return fmt.Errorf("%w: %w", ErrIDTaken, err)
	case "outbox_aggregate_type_aggregate_id_version_key":
		return fmt.Errorf("%w: %w", ErrVersionTaken, err)
	case "outbox_source_event":
		return fmt.Errorf("%w: %w", ErrSourceAnswered, err)
	default:
		return err
	}
}
