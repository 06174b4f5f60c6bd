// Package backlog is the operator's side of an outbox: it shows the unpublished
// events with the reasons, and performs an operator's actions on them. Package
// outbox relays; this package works on the same table, and is all that a
// command line needs.
//
// # States
//
//	pending    waits for a relay
//	leased     a relay has taken its lease, which may have run out if the relay has died
//	retrying   the broker refused it; it is tried again after next_retry_at
//	parked     the broker refused it for the last time: an operator has to act
//	blocked    waits behind a parked event of its aggregate
//	published  the broker has accepted it
//
// Only a parked event needs a person, who has two options. Retry lets the relay publish it again,
// after the cause is fixed. Skip gives the event up: the event moves into the audit table, and a
// marker takes its place, which makes consumers repair themselves from the owner. Either way the
// events behind the parked event are then published in order, because the relay continues from the
// oldest unpublished row.
//
// # Why a skip waits
//
// If an attempt to publish the event were still in progress, the event could arrive after its
// successors, out of order. A relay starts a publish only while its lease lasts longer than that
// publish's timeout. So no attempt is in progress once the lease and the timeout have passed. Skip
// measures this time by the database's clock, from the last lease or the parking, whichever is later. No
// relay claims a parked event, so the wait does not start again.
//
// # Allow
//
// outbox.Append refuses a version whose predecessor has no event. If the newest event of an aggregate was lost, no write of
// the aggregate succeeds any more. Allow lets one event pass, behind a hole in the versions.
//
// Retry, Skip, Allow and Purge write to the audit table in their own transactions
// (package audit).
package backlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

// queryTimeout bounds each statement. A person waits for it, and counting a
// backlog of a million events takes a while.
const queryTimeout = 15 * time.Second

// MaxList is the most events that List returns.
const MaxList = 1000

// ErrUnknown is returned for an event id that is in neither the outbox nor the
// audit table.
var ErrUnknown = errors.New("no such event")

// Backlog is an operator's view of the outbox that db's search_path finds.
type Backlog struct {
	db bounded.Pool
	// counted is how many events a Status counts, and a List sorts. ranked is how many parked events a Status compares by
	// the number of events behind them.
	counted, ranked int
}

// New returns the backlog of the outbox in db.
func New(db *pgxpool.Pool) *Backlog {
	return &Backlog{bounded.Pool{DB: db, Limit: queryTimeout}, MaxCounted, 1000}
}

// Event is one row of the outbox.
type Event struct {
	ID            uuid.UUID `json:"event_id"`
	AggregateType string    `json:"aggregate_type"`
	AggregateID   string    `json:"aggregate_id"`
	Version       int64     `json:"version"`
	Type          string    `json:"event_type"`
	// State is one of the states in the package doc.
	State      string    `json:"state"`
	Attempts   int       `json:"attempts"`
	OccurredAt time.Time `json:"occurred_at"`
	// NextRetryAt is nil if the event waits for no retry, or if a person has written an infinite time.
	NextRetryAt *time.Time `json:"next_retry_at,omitempty"`
	ParkedAt    *time.Time `json:"parked_at,omitempty"`
	PublishedAt *time.Time `json:"published_at,omitempty"`
	// Reason is the broker's reason for its last refusal of the event; empty if there was no refusal, or if
	// the event is published.
	Reason string `json:"reason,omitempty"`
}

// behindParked is the SQL condition that the event o waits behind a parked event of its aggregate.
const behindParked = `EXISTS (
	SELECT FROM outbox older
	 WHERE older.published_at IS NULL AND older.parked_at IS NOT NULL
	   AND older.aggregate_type = o.aggregate_type AND older.aggregate_id = o.aggregate_id
	   AND older.version < o.version)`

// columns has the SQL expressions for the fields of an Event, from the row o.
const columns = `o.id, o.aggregate_type, o.aggregate_id, o.version, o.event_type AS type,
	CASE WHEN o.published_at IS NOT NULL THEN 'published'
	     WHEN o.parked_at IS NOT NULL THEN 'parked'
	     WHEN ` + behindParked + ` THEN 'blocked'
	     WHEN o.lock_token IS NOT NULL THEN 'leased'
	     WHEN o.next_retry_at > now() THEN 'retrying'
	     ELSE 'pending' END AS state,
	o.publish_attempts AS attempts, o.occurred_at, CASE WHEN isfinite(o.next_retry_at) THEN o.next_retry_at END AS next_retry_at,
	o.parked_at, o.published_at, coalesce(o.last_error, '') AS reason`

// selected has the columns of the row o that columns reads.
const selected = `o.id, o.aggregate_type, o.aggregate_id, o.version, o.event_type, o.published_at,
	o.parked_at, o.lock_token, o.next_retry_at, o.publish_attempts, o.occurred_at, o.last_error`

// isBlocked is the rest of a SQL query for the events that wait behind the parked event o.
const isBlocked = `FROM outbox n
	WHERE n.published_at IS NULL AND n.parked_at IS NULL
	  AND n.aggregate_type = o.aggregate_type AND n.aggregate_id = o.aggregate_id AND n.version > o.version`

// blocked is the SQL expression for the number of events that wait behind the parked event o.
const blocked = `(SELECT count(*) ` + isBlocked + `)`

// Filter selects events. Its zero value selects all.
type Filter struct {
	// Parked selects the parked events only.
	Parked bool
	// AggregateID selects the events of one aggregate.
	AggregateID string
	// Reason selects the events with a last refusal that contains this text.
	Reason string
}

// where is the filter's condition, with its arguments from $1 to $3.
const where = `($1 = false OR o.parked_at IS NOT NULL)
	AND ($2 = '' OR o.aggregate_id = $2)
	AND ($3 = '' OR strpos(o.last_error, $3) > 0)`

func (f Filter) args(more ...any) []any {
	return append([]any{f.Parked, f.AggregateID, f.Reason}, more...)
}

// List returns up to limit unpublished events, oldest first. If f selects more than MaxCounted events, List returns the oldest of
// MaxCounted events. With f.Parked these are the events that were parked first. Otherwise they are those that the database finds
// first, which may lack events that are parked or wait for a retry.
func (b *Backlog) List(ctx context.Context, f Filter, limit int) ([]Event, error) {
	from, order := `outbox_pending o WHERE true`, ``
	if f.Parked {
		from = `outbox o WHERE o.published_at IS NULL AND o.parked_at >= '-infinity' AND o.parked_at <= 'infinity'`
		order = `ORDER BY o.parked_at`
	}
	return bounded.Collect(ctx, b.db.Statement("list outbox", `
		SELECT `+columns+`
		  FROM (SELECT `+selected+` FROM `+from+` AND `+where+` `+order+` LIMIT $5) o
		 ORDER BY o.occurred_at, o.id
		 LIMIT $4`, f.args(min(limit, MaxList), b.counted)...), pgx.RowToStructByName[Event])
}

// Detail is all that is known of one event.
type Detail struct {
	// Event is nil if the row has left the outbox. Actions then has the record of the event.
	Event *Event `json:"event"`
	// Row is the whole row of the table.
	Row     json.RawMessage `json:"row,omitempty"`
	Actions []audit.Entry   `json:"actions"`
}

// Show returns one event with the actions on it, or ErrUnknown.
func (b *Backlog) Show(ctx context.Context, id uuid.UUID) (Detail, error) {
	actions, err := audit.History(ctx, b.db.DB, id)
	if err != nil {
		return Detail{}, err
	}
	d := Detail{Actions: actions}
	found, err := bounded.Collect(ctx, b.db.Statement("show event",
		`SELECT `+columns+`, to_jsonb(o)::text AS row FROM outbox o WHERE o.id = $1`, id), pgx.RowToStructByName[struct {
		Event
		Row string
	}])
	switch {
	case err != nil:
		return Detail{}, err
	case len(found) > 0:
		d.Event, d.Row = &found[0].Event, json.RawMessage(found[0].Row)
	case len(d.Actions) == 0:
		return Detail{}, fmt.Errorf("%s: %w", id, ErrUnknown)
	}
	return d, nil
}
