package backlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/operator/audit"
	"example.com/lockstep/pkg/eventing"
)

// landing is for how long after its last lease, and after its parking, a publish
// of an event could still land: the relay's lease (20 s), the timeout of one
// publish (8 s) and a margin for a request that outlived its caller.
const landing = 30 * time.Second

// look is the pause between two tries to skip an event whose time has not come.
var look = eventing.Backoff{Base: 500 * time.Millisecond, Cap: 2 * time.Second}

// Plan says what a skip of an event would do.
type Plan struct {
	Event Event `json:"event"`
	// Blocked counts the events that would leave once it is skipped.
	Blocked int64 `json:"blocked"`
	// Wait is for how many seconds the skip would wait before.
	Wait float64 `json:"wait_seconds"`
}

// PlanSkip reads what Skip would do. Its error is ErrUnknown or ErrNotParked
// where there is nothing to skip.
func (b *Backlog) PlanSkip(ctx context.Context, id uuid.UUID) (Plan, error) {
	e, err := b.parked(ctx, id)
	if err != nil {
		return Plan{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	p := Plan{Event: e}
	err = b.db.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM outbox n
		         WHERE n.published_at IS NULL AND n.parked_at IS NULL
		           AND n.aggregate_type = o.aggregate_type AND n.aggregate_id = o.aggregate_id AND n.version > o.version),
		       greatest(extract(epoch FROM greatest(o.parked_at, o.locked_at) + $2::interval - now()), 0)::float8
		  FROM outbox o WHERE o.id = $1`, id, landing).Scan(&p.Blocked, &p.Wait)
	if err != nil {
		return Plan{}, fmt.Errorf("plan skip: %w", err)
	}
	return p, nil
}

// Skip gives a parked event up: the row leaves the outbox for the audit table,
// which keeps it whole. It first waits, for as long as ctx allows, until no
// attempt to publish it can land any more; that is over half a minute after the
// parking. Where somebody else retried or skipped it meanwhile, the error is
// ErrNotParked or ErrUnknown.
//
// The event's version stays missing for consumers: they find out with the
// aggregate's next event, and repair themselves from the owner.
func (b *Backlog) Skip(ctx context.Context, o audit.Order, id uuid.UUID) error {
	for attempt := 1; ; attempt++ {
		done, err := b.skip(ctx, o, id)
		if err != nil || done {
			return err
		}
		if _, err := b.parked(ctx, id); err != nil {
			return err
		}
		if !eventing.Sleep(ctx, look.Delay(attempt), nil) {
			return fmt.Errorf("skip: %w", context.Cause(ctx))
		}
	}
}

// skip reports false while an attempt could still land.
func (b *Backlog) skip(ctx context.Context, o audit.Order, id uuid.UUID) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	s := audit.Subject{EventID: id}
	err := pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		var row string
		err := tx.QueryRow(ctx, `
			DELETE FROM outbox o
			 WHERE id = $1 AND published_at IS NULL
			   AND parked_at <= now() - $2::interval
			   AND (locked_at IS NULL OR locked_at <= now() - $2::interval)
			RETURNING aggregate_type, aggregate_id, version, to_jsonb(o)::text`, id, landing).
			Scan(&s.AggregateType, &s.AggregateID, &s.Version, &row)
		if err != nil {
			return err
		}
		s.Record = json.RawMessage(row)
		// What waited behind it is found like a retry. And the versions of the aggregate
		// have a hole from here on, which the outbox must not refuse.
		_, err = tx.Exec(ctx, `
			UPDATE outbox
			   SET next_retry_at = CASE WHEN version > $3 THEN now() END, gapless = gapless AND version > $3
			 WHERE aggregate_type = $1 AND aggregate_id = $2
			   AND version IN ((SELECT min(version) FROM outbox WHERE aggregate_type = $1 AND aggregate_id = $2 AND version > $3),
			                   (SELECT max(version) FROM outbox WHERE aggregate_type = $1 AND aggregate_id = $2 AND version < $3))`,
			s.AggregateType, s.AggregateID, s.Version)
		if err != nil {
			return err
		}
		return audit.Write(ctx, tx, "skip", o, s)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("skip: %w", err)
	}
	return true, nil
}
