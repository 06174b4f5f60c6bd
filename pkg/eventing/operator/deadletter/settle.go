package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/txn"
)

const (
	// applyTimeout bounds the transaction that applies one event.
	applyTimeout = 10 * time.Second
	// repairTimeout bounds one repair of an aggregate from its owner.
	repairTimeout = 10 * time.Second
)

// Result is the outcome of a redrive.
type Result string

// The results of a redrive.
const (
	// Applied means that the event has had its effect now.
	Applied Result = "applied"
	// Stale means that the read model already had this version or a later one.
	Stale Result = "stale"
	// Repaired means that earlier events were missing, and that the read model
	// now has the owner's state.
	Repaired Result = "repaired"
	// Done means that the event was applied before; only its message was
	// acknowledged.
	Done Result = "done"
	// Lost means that the owner no longer has this event. The read model has
	// the owner's state.
	Lost Result = "lost"
)

var (
	// ErrNoMessage is returned for a dead letter without a message. The message has expired, or
	// another operator has it leased.
	ErrNoMessage = errors.New("its message is not in the subscription: " +
		"it has expired, or another command holds it, for ten minutes if that was killed")
	// ErrIDTaken is returned for a dead letter with an event id that another event also has. The
	// dead letter has no row of its own, so it can only be discarded.
	ErrIDTaken = errors.New("event_id: another event has it, too")
	// errNeedsOwner rolls the transaction back. The read model takes its owner's state before the
	// next try.
	errNeedsOwner = errors.New("the read model needs its owner's state")
)

// Redrive applies l's event through the inbox, in one transaction with its
// audit entry, and acknowledges its messages. If earlier events are missing, or
// the read model has another history, the aggregate takes its owner's state
// first. After an error without a result, the event has not been applied and l
// stays a dead letter. After an error with a result, the result is committed,
// and only the acknowledgement of a message failed.
func (b *Batch) Redrive(ctx context.Context, o audit.Actor, l Letter) (Result, error) {
	m := b.first(l)
	switch {
	case m == nil:
		return "", ErrNoMessage
	case m.invalid != nil:
		return "", fmt.Errorf("it is no event: %w", m.invalid)
	}
	result, err := b.queue.apply(ctx, o, m, l, false)
	if errors.Is(err, errNeedsOwner) {
		err = b.queue.repair(ctx, m.event)
		lost := errors.Is(err, inbox.ErrLost)
		if err == nil || lost {
			result, err = b.queue.apply(ctx, o, m, l, lost)
		}
		if err == nil && result != Done && !lost {
			result = Repaired
		}
	}
	if err != nil {
		return "", err
	}
	if result != Done {
		b.queue.handler.Committed(ctx, consistency.PositionOf(m.event).Unknown())
	}
	return result, b.acknowledgeSettled(ctx, l)
}

// acknowledgeSettled acknowledges the messages of l after the outcome is committed. If they come back, their row
// shows that they are settled.
func (b *Batch) acknowledgeSettled(ctx context.Context, l Letter) error {
	if err := b.acknowledge(ctx, l); err != nil {
		return fmt.Errorf("%w (the message will be found settled)", err)
	}
	return nil
}

func (q *Queue) repair(ctx context.Context, e eventing.Event) error {
	ctx, cancel := context.WithTimeout(ctx, repairTimeout)
	defer cancel()
	if err := q.handler.Repair(ctx, e); err != nil {
		return fmt.Errorf("%w: %w", errNeedsOwner, err)
	}
	return nil
}

// apply is the consumer's transaction for one event. A concurrent apply of the same event waits on
// the inbox row, and then finds the event done. If lost is set, the event has no effect.
func (q *Queue) apply(ctx context.Context, o audit.Actor, m *message, l Letter, lost bool) (result Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, q.db.DB, func(tx pgx.Tx) error {
		fresh, err := q.mark(ctx, tx, "done", m, l)
		if err != nil || !fresh {
			result = Done
			return err
		}
		if result = Lost; !lost {
			if result, err = q.effect(ctx, tx, m.event); err != nil {
				return err
			}
		}
		return audit.Write(ctx, tx, "redrive", o, l.subject())
	})
	return result, err
}

func (q *Queue) effect(ctx context.Context, tx pgx.Tx, e eventing.Event) (Result, error) {
	switch outcome, err := inbox.ApplyOne(ctx, tx, q.handler, e); {
	case err != nil:
		return "", err
	case outcome == inbox.Gap, outcome == inbox.Diverged:
		return "", errNeedsOwner
	case outcome == inbox.Stale:
		return Stale, nil
	}
	return Applied, nil
}

// mark sets the status of l's inbox row, and inserts the row if there is none. If the status of the
// row is done, or is discarded already, mark returns false and does not change the row. It returns ErrIDTaken if the row
// belongs to another event, and an error that wraps txn.ErrLocked if another session holds the row.
func (q *Queue) mark(ctx context.Context, tx pgx.Tx, status string, m *message, l Letter) (bool, error) {
	messageID, published := "", l.Since
	if m != nil {
		messageID, published = m.id, m.published
	}
	tag, err := tx.Exec(ctx, `
		INSERT INTO inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version,
		                   message_id, publish_time, status, processed_at, source)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, clock_timestamp(), 'redrive')
		ON CONFLICT (consumer, event_id) DO UPDATE
		   SET status = excluded.status, processed_at = excluded.processed_at, source = excluded.source, begun = 0
		 WHERE inbox.status <> 'done' AND (inbox.status <> 'discarded' OR excluded.status <> 'discarded')
		   AND (inbox.aggregate_type, inbox.aggregate_id, inbox.version) = (excluded.aggregate_type, excluded.aggregate_id, excluded.version)`,
		l.Subscription, l.EventID, l.Type, l.AggregateType, l.AggregateID, l.Version, messageID, published, status)
	switch {
	case txn.IsLockTimeout(err):
		return false, fmt.Errorf("write inbox: %w: %w", txn.ErrLocked, err)
	case err != nil:
		return false, fmt.Errorf("write inbox: %w", err)
	}
	if tag.RowsAffected() == 1 {
		return true, nil
	}
	var own bool
	err = tx.QueryRow(ctx, `
		SELECT (aggregate_type, aggregate_id, version) = ($3, $4, $5) FROM inbox WHERE consumer = $1 AND event_id = $2`,
		l.Subscription, l.EventID, l.AggregateType, l.AggregateID, l.Version).Scan(&own)
	if err == nil && !own {
		err = ErrIDTaken
	}
	if err != nil {
		return false, fmt.Errorf("write inbox: %w", err)
	}
	return false, nil
}
