package outbox

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"example.com/lockstep/pkg/eventing"
)

// This file has the statements that Append sends.

// stored are the columns that Append writes.
const stored = `id, aggregate_type, aggregate_id, event_type, version, schema_version,
	payload, occurred_at, tenant_id, epoch, traceparent, source_event_id, previous_event_id`

// one is a SQL table e with a single event, from the parameters of a statement.
const one = `(VALUES ($1::uuid, $2::text, $3::text, $4::text, $5::bigint, $6::int,
		                $7::bytea, $8::timestamptz, $9::text, $10::bigint, $11::text, $12::uuid, $13::uuid))
		       AS e (` + stored + `)`

// newest ends a query for the newest event o of the aggregate of an event e. It looks into the unique key once.
const newest = `
			  FROM outbox o
			 WHERE o.aggregate_type = e.aggregate_type AND o.aggregate_id = e.aggregate_id
			 ORDER BY o.version DESC
			 LIMIT 1`

// withNewest joins a single event e with the newest event o of its aggregate, for follows and for isHead.
const withNewest = `
		  LEFT JOIN LATERAL (
			SELECT o.version AS newest, o.gapless AS exact, o.published_at IS NOT NULL AS published` + newest + `) o ON true`

// follows is a SQL expression about an event e and the newest event o of its aggregate (see
// withNewest). It is true if there is no o, or if e is the next event after o. For any other e the
// expression calls outbox_refuses or outbox_refuses_epoch, which raises an error. The check is not a
// function, because a function in PL/pgSQL took a third of an event's cost. If the newest row was
// written before the column gapless existed, the purge may have deleted versions after the row. So any
// later version is accepted behind the row.
const follows = `CASE WHEN ` + isPresent + ` THEN
			CASE WHEN o.newest IS NULL OR o.newest = e.version - 1 OR NOT o.exact AND o.newest < e.version THEN true
			     ELSE outbox_refuses(e.aggregate_type, e.aggregate_id, e.version, o.newest) END END`

// firstFollows is follows for the first of several events of an aggregate, and true for the later events. It
// has a subquery in place of the join, because the server plans the statement at each call, and a join
// takes 20 µs more.
const firstFollows = `CASE WHEN NOT e.first THEN true WHEN ` + isPresent + ` THEN coalesce((
			SELECT CASE WHEN o.version = e.version - 1 OR NOT o.gapless AND o.version < e.version THEN true
			            ELSE outbox_refuses(e.aggregate_type, e.aggregate_id, e.version, o.version) END` + newest + `), true) END`

// isPresent is a SQL expression that is true for an event e of the present epoch, and raises an error for
// any other. It reads the epoch in one subquery, because each subquery costs 2 µs.
const isPresent = `(
			SELECT CASE WHEN p.epoch = e.epoch THEN true ELSE outbox_refuses_epoch(e.epoch, p.epoch) END
			  FROM outbox_epochs p
			 ORDER BY p.epoch DESC
			 LIMIT 1)`

// isHead is a SQL expression about an event e and the newest event o of its aggregate (see withNewest).
// It is true if e waits for no other event, because there is no o, or o is published. "is head" in
// claim.sql has this condition, too. o is the event before e, because follows refuses any other e.
const isHead = `o.published IS NOT FALSE`

func insertOne(b *pgx.Batch, e eventing.Event) {
	b.Queue(`
		INSERT INTO outbox (`+stored+`, gapless)
		SELECT `+stored+`, `+follows+`
		  FROM `+one+withNewest, arguments(e)...)
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

// returned has the fields written, taken and savepoint of a lease, as columns that the statement
// returns. Within a savepoint a row has the id of the subtransaction and not that of the transaction.
const returned = `
		RETURNING true, lock_token IS NOT NULL, xmin <> pg_current_xact_id()::xid`

func (l *lease) scan(row pgx.Row) error { return row.Scan(&l.written, &l.taken, &l.savepoint) }

// insertLeased inserts an event with a lease, unless the event before it is not published yet.
func insertLeased(b *pgx.Batch, e eventing.Event, l *lease) {
	b.Queue(`
		INSERT INTO outbox (`+stored+`, gapless, lock_token, locked_at)
		SELECT `+stored+`, `+follows+`,
		       CASE WHEN `+isHead+` THEN $14::text END, CASE WHEN `+isHead+` THEN $15::timestamptz END
		  FROM `+one+withNewest+returned, append(arguments(e), l.token, l.since)...).
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
// of each aggregate, and inSequence has checked the later events.
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
		SELECT `+stored+`, `+firstFollows+`
		  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::int[],
		              $7::bytea[], $8::timestamptz[], $9::text[], $10::bigint[], $11::text[], $12::uuid[], $13::uuid[], $14::boolean[])
		       AS e (`+stored+`, first)`,
		ids, types, aggregates, names, versions, schemas, payloads, times, tenants, epochs, traces, sources, previous, first)
}

// inSequence checks events before they are inserted together. first says for each event whether the
// event is the first one of its aggregate in events. inSequence returns an error if the versions of
// an aggregate are not successive, or if the events have different epochs.
func inSequence(events []eventing.Event) (first []bool, err error) {
	newest := make(map[aggregateKey]int64, len(events))
	for _, e := range events {
		if e.Epoch != events[0].Epoch {
			return nil, fmt.Errorf("epochs %d and %d in one call: %w", events[0].Epoch, e.Epoch, ErrEpochEnded)
		}
		key := aggregateKey{e.AggregateType, e.AggregateID}
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
