package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

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
	// ErrVersionTaken means that the aggregate already has an event of that version. Two
	// transactions decided on the same state. The caller must roll back its transaction.
	ErrVersionTaken = errors.New("the aggregate has an event of this version")
	// ErrVersionSkipped means that the aggregate has no event of the version before. The
	// owner has lost a version, or has written a version without an event.
	ErrVersionSkipped = errors.New("the aggregate has no event of the version before")
	// ErrSourceAnswered means that the aggregate already has an event that answers the same
	// source event. The transaction is a repetition. The caller rolls it back and treats it as
	// done.
	ErrSourceAnswered = errors.New("the source event is answered already")
	// ErrIDTaken means that the outbox already has an event of that id. The caller must roll back its
	// transaction.
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
// newest event was published long ago, because the purge never deletes the newest event. Append
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

// copied returns a copy of b, which may be nil. The caller may send b again, in another transaction, and the
// event must not be in b then.
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

// stored are the columns that Append writes.
const stored = `id, aggregate_type, aggregate_id, event_type, version, schema_version,
	payload, occurred_at, tenant_id, epoch, traceparent, source_event_id, previous_event_id`

// follows is a SQL expression that is true for an event e that is the first or the next event of
// its aggregate. For any other event the expression calls outbox_refuses or outbox_refuses_epoch,
// which raises an error. The check is a subquery that looks into the unique key once. The check is
// not a function, because a function in PL/pgSQL took a third of an event's cost. If the newest row
// was written before the column gapless existed, the purge may have deleted versions after it. So
// behind such a row any later version is accepted.
const follows = `CASE WHEN ` + isPresent + ` THEN coalesce((
			SELECT CASE WHEN o.version = e.version - 1 OR NOT o.gapless AND o.version < e.version THEN true
			            ELSE outbox_refuses(e.aggregate_type, e.aggregate_id, e.version, o.version) END
			  FROM outbox o
			 WHERE o.aggregate_type = e.aggregate_type AND o.aggregate_id = e.aggregate_id
			 ORDER BY o.version DESC
			 LIMIT 1), true) END`

// isPresent is a SQL expression that is true for an event e of the present epoch, and raises an error for
// any other. It reads the epoch in one subquery, because each subquery costs 2 µs.
const isPresent = `(
			SELECT CASE WHEN p.epoch = e.epoch THEN true ELSE outbox_refuses_epoch(e.epoch, p.epoch) END
			  FROM outbox_epochs p
			 ORDER BY p.epoch DESC
			 LIMIT 1)`

// one are the columns of one event, as parameters of a statement.
const one = `(VALUES ($1::uuid, $2::text, $3::text, $4::text, $5::bigint, $6::int,
		                $7::bytea, $8::timestamptz, $9::text, $10::bigint, $11::text, $12::uuid, $13::uuid))
		       AS e (` + stored + `)`

func insertOne(b *pgx.Batch, e eventing.Event) {
	b.Queue(`
		INSERT INTO outbox (`+stored+`, gapless)
		SELECT `+stored+`, `+follows+`
		  FROM `+one, arguments(e)...)
}

// lease is the lease with which insertLeased writes an event.
type lease struct {
	token string
	// since is when the lease begins. It is a time before the statement was sent, and not the time
	// at which the statement is executed, because the relay must know when the lease is over,
	// however long the statement waits.
	since time.Time
	// written says that the event was written. taken says that it has the lease. savepoint says that it
	// was written within a savepoint, to which the transaction may still roll back.
	written, taken, savepoint bool
}

// returned are the fields of a lease, as columns that the statement returns. Within a savepoint
// a row has the id of the subtransaction and not that of the transaction.
const returned = `
		RETURNING true, lock_token IS NOT NULL, xmin <> pg_current_xact_id()::xid`

func (l *lease) scan(row pgx.Row) error { return row.Scan(&l.written, &l.taken, &l.savepoint) }

// insertLeased inserts an event with a lease, unless an earlier event of the aggregate is not published
// yet. The condition for the lease is the same as "is head" in claim.sql.
func insertLeased(b *pgx.Batch, e eventing.Event, l *lease) {
	if e.Version == 1 { // there is no earlier event, so the statement is cheaper
		b.Queue(`
		INSERT INTO outbox (`+stored+`, gapless, lock_token, locked_at)
		SELECT `+stored+`, `+follows+`, $14::text, $15::timestamptz
		  FROM `+one+returned, append(arguments(e), l.token, l.since)...).
			QueryRow(l.scan)
		return
	}
	b.Queue(`
		INSERT INTO outbox (`+stored+`, gapless, lock_token, locked_at)
		SELECT `+stored+`, `+follows+`, lease.token, lease.since
		  FROM `+one+`
		  LEFT JOIN LATERAL (
			SELECT $14::text AS token, $15::timestamptz AS since
			 WHERE coalesce((
				SELECT p.published_at IS NOT NULL
				  FROM outbox p
				 WHERE p.aggregate_type = e.aggregate_type AND p.aggregate_id = e.aggregate_id AND p.version < e.version
				 ORDER BY p.version DESC
				 LIMIT 1), true)) lease ON true`+returned, append(arguments(e), l.token, l.since)...).
		QueryRow(l.scan)
}

// arguments are the parameters of the columns in one.
func arguments(e eventing.Event) []any {
	return []any{
		e.ID, e.AggregateType, e.AggregateID, e.Type, e.Version, e.SchemaVersion,
		notNull(e.Payload), e.OccurredAt, e.TenantID, e.Epoch, e.TraceParent,
		maybe(e.SourceEventID), maybe(e.PreviousEventID),
	}
}

// maybe returns id, or NULL for the zero id. It returns a type of pgtype, because pgx can send
// arrays of that type without asking the server.
func maybe(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: id != uuid.Nil} }

// insertMany inserts several events with one statement. For one event it costs more than
// insertOne. For two events it costs less than two calls of insertOne.
//
// A statement does not see the rows that it inserts. So the database checks only the first event
// of each aggregate, and inSequence has checked the others.
func insertMany(b *pgx.Batch, events []eventing.Event, first []bool) {
	n := len(events)
	ids, sources, previous := make([]pgtype.UUID, n), make([]pgtype.UUID, n), make([]pgtype.UUID, n)
	types, aggregates, names := make([]string, n), make([]string, n), make([]string, n)
	versions, schemas, epochs := make([]int64, n), make([]int32, n), make([]int64, n)
	payloads, times := make([][]byte, n), make([]time.Time, n)
	tenants, traces := make([]string, n), make([]string, n)
	for i, e := range events {
		ids[i], sources[i], previous[i] = maybe(e.ID), maybe(e.SourceEventID), maybe(e.PreviousEventID)
		types[i], aggregates[i], names[i] = e.AggregateType, e.AggregateID, e.Type
		versions[i], schemas[i], epochs[i] = e.Version, int32(e.SchemaVersion), e.Epoch
		payloads[i], times[i] = notNull(e.Payload), e.OccurredAt
		tenants[i], traces[i] = e.TenantID, e.TraceParent
	}
	b.Queue(`
		INSERT INTO outbox (`+stored+`, gapless)
		SELECT `+stored+`, CASE WHEN e.first THEN `+follows+` ELSE true END
		  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::int[],
		              $7::bytea[], $8::timestamptz[], $9::text[], $10::bigint[], $11::text[], $12::uuid[], $13::uuid[], $14::boolean[])
		       AS e (`+stored+`, first)`,
		ids, types, aggregates, names, versions, schemas, payloads, times, tenants, epochs, traces, sources, previous, first)
}

// inSequence checks events before they are inserted together. first says for each event whether the
// event is the first one of its aggregate in events. inSequence returns an error if the versions of
// an aggregate are not successive, or if the events have different epochs.
func inSequence(events []eventing.Event) (first []bool, err error) {
	type aggregate struct{ kind, id string }
	newest := make(map[aggregate]int64, len(events))
	for _, e := range events {
		if e.Epoch != events[0].Epoch {
			return nil, fmt.Errorf("epochs %d and %d in one call: %w", events[0].Epoch, e.Epoch, ErrEpochEnded)
		}
		key := aggregate{e.AggregateType, e.AggregateID}
		before, again := newest[key]
		switch {
		case again && e.Version <= before:
			err = ErrVersionTaken
		case again && e.Version != before+1:
			err = ErrVersionSkipped
		}
		if err != nil {
			return nil, fmt.Errorf("version %d of %s %s, after version %d: %w", e.Version, key.kind, key.id, before, err)
		}
		newest[key], first = e.Version, append(first, !again)
	}
	return first, nil
}

// notNull returns payload, or an empty slice if payload is nil. An event may have no payload, but
// the column is NOT NULL.
func notNull(payload []byte) []byte {
	if payload == nil {
		return []byte{}
	}
	return payload
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

const (
	// skipped is the code of the error that outbox_refuses raises if the version before is
	// missing. If the version is taken, outbox_refuses raises the error of the unique key.
	skipped = "LS002"
	// epochEnded is the code of the error that outbox_refuses_epoch raises.
	epochEnded = "LS004"
)

// named wraps the database's error for a violated key or rule of the outbox in the matching error
// variable of this package. Other errors, such as errors of the caller's own statements, stay
// unchanged.
func named(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch {
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
