package backlog

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// MaxCounted is how many events a Status counts, and how many a List sorts, at most. After a long outage millions may be
// pending, and the statement would reach its time limit.
const MaxCounted = 100_000

// MaxBlocked is how many events behind a parked event a Status counts, at most. Each of them is read, and thousands of
// aggregates may have a parked event.
const MaxBlocked = 500

// maxGroups bounds the lists of a Status. If more aggregates have parked events, the events have a
// common cause, and the first hundred show this cause.
const maxGroups = 100

// Status describes an outbox at one moment.
type Status struct {
	// Pending counts the events that are not published, parked ones included. It counts up to MaxCounted of them.
	Pending int64 `json:"pending"`
	// More is true if Pending has reached MaxCounted. There may be more events then, and OldestAge and Blocked are those
	// of the events that Pending counts.
	More bool `json:"more"`
	// OldestAge is the waiting time in seconds of the oldest event that a relay
	// could send; 0 if there is none.
	OldestAge float64 `json:"oldest_age_seconds"`
	// Parked counts the parked events, which need a person.
	Parked int64 `json:"parked"`
	// Blocked counts the events that wait behind a parked event of their aggregate.
	Blocked int64 `json:"blocked"`
	// Relays counts the relays with a heartbeat in the last 15 seconds.
	Relays int64 `json:"relays"`
	// RelaySeen is the time of the last heartbeat of any relay; nil if there
	// never was a relay, or if each has stopped normally.
	RelaySeen *time.Time `json:"relay_seen_at"`
	// ByReason has the parked events by the reason of their refusal, the
	// reason with the most events first; at most a hundred reasons.
	ByReason []Reason `json:"by_reason"`
	// ByAggregate has the aggregates with a parked event, the aggregate with
	// the most blocked events first; at most a hundred. They are of the 1,000 events that were parked first.
	ByAggregate []Aggregate `json:"by_aggregate"`
}

// Reason is a refusal, and the number of events that were parked for it.
type Reason struct {
	Reason string `json:"reason"`
	Parked int64  `json:"parked"`
}

// Aggregate is an aggregate that a parked event blocks.
type Aggregate struct {
	AggregateType string    `json:"aggregate_type"`
	AggregateID   string    `json:"aggregate_id"`
	Event         string    `json:"event_id"`
	Version       int64     `json:"version"`
	ParkedAt      time.Time `json:"parked_at"`
	Reason        string    `json:"reason"`
	// Blocked counts the events behind the parked event. It counts up to MaxBlocked of them.
	Blocked int64 `json:"blocked"`
}

// Status reads the state of the outbox.
func (b *Backlog) Status(ctx context.Context) (s Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	// One snapshot for all queries, so that the numbers add up.
	once := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, b.db.DB, once, func(tx pgx.Tx) error {
		return b.readStatus(ctx, tx, &s)
	})
	if err != nil {
		return Status{}, fmt.Errorf("status of the outbox: %w", err)
	}
	return s, nil
}

//go:embed status.sql
var countBacklog string

func (b *Backlog) readStatus(ctx context.Context, tx pgx.Tx, s *Status) error {
	err := tx.QueryRow(ctx, countBacklog, b.counted).Scan(&s.Pending, &s.Parked, &s.Blocked, &s.OldestAge)
	if err != nil {
		return err
	}
	err = tx.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE seen_at > now() - interval '15 seconds'), max(seen_at) FILTER (WHERE isfinite(seen_at))
		  FROM outbox_relays`).Scan(&s.Relays, &s.RelaySeen)
	if err != nil {
		return err
	}
	s.More = s.Pending == int64(b.counted)
	// The writer's clock may be ahead of the database's.
	s.OldestAge = max(s.OldestAge, 0)
	rows, _ := tx.Query(ctx, `
		SELECT coalesce(last_error, '') AS reason, count(*) AS parked
		  FROM outbox
		 WHERE published_at IS NULL AND parked_at >= '-infinity' AND parked_at <= 'infinity'
		 GROUP BY 1
		 ORDER BY parked DESC, reason
		 LIMIT $1`, maxGroups)
	if s.ByReason, err = pgx.CollectRows(rows, pgx.RowToStructByName[Reason]); err != nil {
		return err
	}
	rows, _ = tx.Query(ctx, `
		SELECT o.aggregate_type, o.aggregate_id, o.id::text AS event, o.version, o.parked_at, coalesce(o.last_error, '') AS reason,
		       (SELECT count(*) FROM (SELECT `+isBlocked+` LIMIT $3) AS n) AS blocked
		  FROM (SELECT id, aggregate_type, aggregate_id, version, parked_at, last_error FROM outbox
		         WHERE published_at IS NULL AND parked_at >= '-infinity' AND parked_at <= 'infinity'
		         ORDER BY parked_at LIMIT $2) o
		 ORDER BY blocked DESC, o.parked_at, o.id
		 LIMIT $1`, maxGroups, b.ranked, MaxBlocked)
	s.ByAggregate, err = pgx.CollectRows(rows, pgx.RowToStructByName[Aggregate])
	return err
}

// Moment is a point in time, as a snapshot of the outbox's database.
type Moment string

// Moment returns the present moment.
func (b *Backlog) Moment(ctx context.Context) (now Moment, err error) {
	err = b.db.Statement("take a snapshot", `SELECT pg_current_snapshot()::text`).Scan(ctx, &now)
	return now, err
}

// Sendable reports whether there is an event that was committed before until and that relays would
// still publish. Such an event is neither parked nor behind a parked event. A caller that waits for
// the end of a backlog needs until: under steady writes there is always a later event.
//
// A snapshot decides whether an event was committed before until, because the id and the time of an event
// are from before its commit. The first condition on xact spares the index scan the later events. An event that a
// dump has brought from another cluster may have a transaction that this cluster has not reached. No snapshot
// has seen this transaction, so Sendable counts the event whenever it was restored.
func (b *Backlog) Sendable(ctx context.Context, until Moment) (yes bool, err error) {
	const sendable = `o.parked_at IS NULL AND NOT ` + behindParked
	err = b.db.Statement("look for events to publish", `
		SELECT EXISTS (
		       SELECT FROM outbox_pending o
		        WHERE o.xact < pg_snapshot_xmax($1::text::pg_snapshot) AND pg_visible_in_snapshot(o.xact, $1::text::pg_snapshot)
		          AND `+sendable+`)
		    OR EXISTS (SELECT FROM outbox_pending o WHERE o.xact >= pg_snapshot_xmax(pg_current_snapshot()) AND `+sendable+`)`,
		string(until)).Scan(ctx, &yes)
	return yes, err
}
