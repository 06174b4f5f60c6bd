package backlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// publishWindow is the time after an event's last lease, and after its parking, in which a publish
// of the event could still arrive. It is the sum of the relay's lease (20 s), the timeout of one
// publish (8 s) and a margin for a request that outlived its caller.
const publishWindow = 30 * time.Second

// look is the pause between two attempts to skip an event while a publish of it could still arrive.
var look = backoff.Policy{Base: 500 * time.Millisecond, Cap: 2 * time.Second}

// Plan describes the effect of skipping an event.
type Plan struct {
	Event Event `json:"event"`
	// Newest is true if the outbox has no later event of the aggregate.
	Newest bool `json:"newest"`
	// Marker is true if the event is itself the marker of an earlier skip, and the broker has refused
	// the marker, too. A skip would leave nothing in place of the marker.
	Marker bool `json:"marker"`
	// Blocked counts the events that a skip would unblock.
	Blocked int64 `json:"blocked"`
	// Wait is the number of seconds that a skip would wait first.
	Wait float64 `json:"wait_seconds"`
}

// PlanSkip returns what Skip would do, and changes nothing. It returns ErrUnknown or ErrNotParked if there is
// no parked event to skip.
func (b *Backlog) PlanSkip(ctx context.Context, id uuid.UUID) (Plan, error) {
	e, err := b.parked(ctx, id)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Event: e, Marker: e.Type == eventing.Skipped}
	err = b.db.Statement("plan skip", `
		SELECT `+blocked+`,
		       NOT EXISTS (SELECT FROM outbox n
		         WHERE n.aggregate_type = o.aggregate_type AND n.aggregate_id = o.aggregate_id AND n.version > o.version),
		       extract(epoch FROM least($2::interval, greatest(greatest(o.parked_at, o.locked_at) + $2::interval - now(), interval '0')))::float8
		  FROM outbox o WHERE o.id = $1`, id, publishWindow).Scan(ctx, &p.Blocked, &p.Newest, &p.Wait)
	return p, err
}

// Skip gives a parked event up. The audit table keeps the whole event. A marker takes the event's
// place in the outbox, with the event's id and version, the type eventing.Skipped and no payload.
// The marker is published like any event, and makes consumers repair themselves from the owner,
// even if no event follows. If the broker refuses the marker too, the marker is parked, and a
// second Skip removes it. Then the version stays missing, and consumers notice the gap with the
// aggregate's next event.
//
// Skip first waits until no attempt to publish the event can reach the broker any more, or until
// ctx ends. The wait ends half a minute after the parking and after the last lease. If these times are
// in the future, because the database's clock was set back since, it ends half a minute after the call.
// If another operator retried or skipped the event meanwhile, the error is ErrNotParked or ErrUnknown.
func (b *Backlog) Skip(ctx context.Context, o audit.Actor, id uuid.UUID) error {
	began := time.Now()
	for range look.Attempts(ctx) {
		done, err := b.skip(ctx, o, id, time.Since(began) > publishWindow)
		if err != nil || done {
			return err
		}
		if _, err := b.parked(ctx, id); err != nil {
			return err
		}
	}
	return fmt.Errorf("skip: %w", context.Cause(ctx))
}

// skip returns false while an attempt to publish the event could still arrive. waited is true if Skip
// has waited for publishWindow.
func (b *Backlog) skip(ctx context.Context, o audit.Actor, id uuid.UUID, waited bool) (bool, error) {
	s := audit.Subject{EventID: id}
	err := b.db.Tx(ctx, "skip", func(ctx context.Context, tx pgx.Tx) error {
		var row, name string
		err := tx.QueryRow(ctx, `
			SELECT aggregate_type, aggregate_id, version, event_type, to_jsonb(o)::text FROM outbox o
			 WHERE id = $1 AND published_at IS NULL AND parked_at IS NOT NULL
			   AND (greatest(parked_at, locked_at) <= now() - $2::interval OR $3 AND greatest(parked_at, locked_at) > clock_timestamp())
			   FOR UPDATE`, id, publishWindow, waited).
			Scan(&s.AggregateType, &s.AggregateID, &s.Version, &name, &row)
		if err != nil {
			return err
		}
		s.Record = json.RawMessage(row)
		if name == eventing.Skipped {
			err = remove(ctx, tx, id, s)
		} else {
			_, err = tx.Exec(ctx, `
				UPDATE outbox SET event_type = $2, payload = '', last_error = NULL, `+freed+` WHERE id = $1`, id, eventing.Skipped)
		}
		if err != nil {
			return err
		}
		return audit.Write(ctx, tx, "skip", o, s)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// remove deletes a marker. Relays find the event behind the marker as a retry that is due. The
// versions of the aggregate have a hole from here on, which the outbox must not refuse.
//
// An event behind the marker may be committed while this transaction runs. The transaction does not see
// that event, so it cannot make it a retry. A relay that claims before the transaction commits does not take
// the event, because the marker is still in front of it. So the transaction also requests a scan. A request
// after the COMMIT would not be enough: it is missing if the command ends before it, or if a standby takes over
// that has only the COMMIT.
func remove(ctx context.Context, tx pgx.Tx, id uuid.UUID, s audit.Subject) error {
	if err := queue.RequestScan(ctx, tx, "removal of "+id.String()); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM outbox WHERE id = $1`, id); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `
		UPDATE outbox
		   SET next_retry_at = CASE WHEN version > $3 THEN now() END, gapless = gapless AND version > $3
		 WHERE aggregate_type = $1 AND aggregate_id = $2
		   AND version IN ((SELECT min(version) FROM outbox WHERE aggregate_type = $1 AND aggregate_id = $2 AND version > $3),
		                   (SELECT max(version) FROM outbox WHERE aggregate_type = $1 AND aggregate_id = $2 AND version < $3))`,
		s.AggregateType, s.AggregateID, s.Version)
	return err
}
