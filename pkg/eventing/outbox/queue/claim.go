package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Limits bound what one claim takes.
type Limits struct {
	// Aggregates, Events and PerAggregate are counts, Bytes those of payloads.
	Aggregates, Events, PerAggregate, Bytes int
	// Without are aggregate types to leave alone.
	Without []string
}

// Claimed is what a claim took.
type Claimed struct {
	Runs []Run
	// Seen is the snapshot of the claim.
	Seen Snapshot
	// Cut says that there was more than the limits allow.
	Cut bool
}

// freshRows is how many new events a claim looks at. If there are more, Cut
// says so and a walk finds them.
const freshRows = 2000

// Fresh claims for token what was committed since a snapshot, and what follows
// the positions in after: those whose events this relay has just published. Its
// cost depends on what it finds, and on nothing else in the table.
func (q Queue) Fresh(ctx context.Context, token string, l Limits, since Snapshot, after []Position) (Claimed, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var done positions
	for _, p := range after {
		done.add(p)
	}
	var snapshot *string
	if since != "" {
		snapshot = (*string)(&since)
	}
	args := append(l.args(token), snapshot, freshRows, done.types, done.ids, done.versions)
	var c Claimed
	var found, heads int
	var events []Event
	err := q.run(ctx, freshClaim, args, func(rows pgx.Rows) (err error) {
		events, err = scanClaim(rows, &c.Seen, &heads, &found)
		return err
	})
	if err != nil {
		return Claimed{}, fmt.Errorf("claim new events: %w", err)
	}
	c.Runs = runs(events)
	c.Cut = found >= freshRows || heads >= l.Aggregates || heads > len(c.Runs)
	return c, nil
}

// Walked is what a walk took, and learned of the aggregates that it passed.
type Walked struct {
	Claimed
	// Next is where the walk goes on; the zero Position is where it begins.
	Next Position
	// Done says that there is no aggregate beyond Next.
	Done bool
	// RetryIn is how long until the next head's next_retry_at, if it is still to
	// come; zero if there is none.
	RetryIn time.Duration
}

// Walk claims for token among the next steps aggregates with pending events,
// in the order of their ids, from a position on. It finds what Fresh cannot:
// what a dead relay leased, what waited for a retry or an operator, and what
// was pending before this relay began. Its cost is that of one index probe per
// aggregate, and of the entries of published rows that no vacuum could remove.
func (q Queue) Walk(ctx context.Context, token string, l Limits, from Position, steps int) (Walked, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	// Planned anew each time, by what statistics say of the moment: it is rare.
	args := append([]any{pgx.QueryExecModeCacheDescribe}, l.args(token)...)
	rows, err := q.db.Query(ctx, walkClaim, append(args, from.AggregateType, from.AggregateID, steps)...)
	if err != nil {
		return Walked{}, fmt.Errorf("walk over aggregates: %w", err)
	}
	var w Walked
	var heads, walked int
	var lastType, lastID *string
	var retry *float64
	events, err := scanClaim(rows, &w.Seen, &heads, &walked, &lastType, &lastID, &retry)
	if err != nil {
		return Walked{}, fmt.Errorf("walk over aggregates: %w", err)
	}
	w.Runs = runs(events)
	w.Cut = heads >= l.Aggregates && steps > l.Aggregates || heads > len(w.Runs)
	w.Done = walked < steps
	if retry != nil {
		w.RetryIn = time.Duration(*retry * float64(time.Second))
	}
	if lastType != nil {
		w.Next = Position{AggregateType: *lastType, AggregateID: *lastID}
	}
	return w, nil
}

func (l Limits) args(token string) []any {
	without := l.Without
	if without == nil {
		without = []string{}
	}
	return []any{token, LeaseTime, without, l.Aggregates, l.Events, l.PerAggregate, l.Bytes}
}

// scanClaim reads rows that begin with report, the same in each, and go on with
// an event, which is null when nothing was claimed.
func scanClaim(rows pgx.Rows, report ...any) ([]Event, error) {
	defer rows.Close()
	var events []Event
	for rows.Next() {
		var e Event
		var previous uuid.NullUUID
		to := []any{
			&e.ID, &e.AggregateType, &e.AggregateID, &e.Type, &e.Version, &e.SchemaVersion,
			&e.Payload, &e.OccurredAt, &e.TenantID, &e.Epoch, &e.TraceParent, &e.Attempts, &previous,
		}
		nothing := rows.RawValues()[len(report)] == nil
		if nothing {
			to = make([]any, len(to)) // which scans none of them
		}
		if err := rows.Scan(append(report, to...)...); err != nil {
			return nil, err
		}
		if !nothing {
			e.OccurredAt, e.PreviousEventID = e.OccurredAt.UTC(), previous.UUID
			events = append(events, e)
		}
	}
	return events, rows.Err()
}
