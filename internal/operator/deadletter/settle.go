package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/operator/audit"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
)

const (
	// applyTimeout bounds one transaction, repairTimeout one repair.
	applyTimeout  = 10 * time.Second
	repairTimeout = 10 * time.Second
)

// Result is what became of a letter.
type Result string

// The results of a redrive.
const (
	// Applied means that the event has had its effect now.
	Applied Result = "applied"
	// Stale means that the read model was there already, or beyond.
	Stale Result = "stale"
	// Repaired means that events were missing before it, and that the read model
	// now has what the owner has.
	Repaired Result = "repaired"
	// Done means that it was applied before; nothing was done but to
	// acknowledge its message.
	Done Result = "done"
)

var (
	// ErrNoMessage is a letter whose message has expired, or is in somebody
	// else's hand.
	ErrNoMessage = errors.New("its message is not in the subscription: it has expired, or another operator has it in hand")
	// errGap rolls the transaction back.
	errGap = errors.New("events before it are missing")
)

// Redrive applies l's event through the inbox, in one transaction with its audit
// entry, and acknowledges its messages. Where events before it are missing, the
// aggregate is repaired first. After an error nothing has changed, and l stays a
// dead letter; but when the error comes with a result, that is committed, and
// only a message could not be acknowledged.
func (h *Hand) Redrive(ctx context.Context, o audit.Order, handler inbox.Handler, l Letter) (Result, error) {
	m := h.first(l)
	switch {
	case m == nil:
		return "", ErrNoMessage
	case m.invalid != nil:
		return "", fmt.Errorf("it is no event: %w", m.invalid)
	}
	result, err := h.box.apply(ctx, o, handler, m, l)
	if errors.Is(err, errGap) {
		if err = repair(ctx, handler, m.event); err == nil {
			result, err = h.box.apply(ctx, o, handler, m, l)
		}
		if err == nil && result != Done {
			result = Repaired
		}
	}
	if err != nil {
		return "", err
	}
	if result != Done {
		handler.Committed(m.event.Key())
	}
	return result, h.acknowledge(ctx, l)
}

func repair(ctx context.Context, handler inbox.Handler, e eventing.Event) error {
	ctx, cancel := context.WithTimeout(ctx, repairTimeout)
	defer cancel()
	if err := handler.Repair(ctx, e); err != nil {
		return fmt.Errorf("%w, and cannot be repaired: %w", errGap, err)
	}
	return nil
}

// apply is the consumer's transaction for one event. A second one with the same
// event waits on the inbox row, and then finds it done.
func (b *Box) apply(ctx context.Context, o audit.Order, handler inbox.Handler, m *message, l Letter) (result Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		fresh, err := b.mark(ctx, tx, "done", m, l)
		if err != nil || !fresh {
			result = Done
			return err
		}
		outcome, err := handler.One(ctx, tx, m.event)
		switch {
		case err != nil:
			return err
		case outcome == inbox.Gap:
			return errGap
		case outcome == inbox.Stale:
			result = Stale
		default:
			result = Applied
		}
		return audit.Write(ctx, tx, "redrive", o, l.subject())
	})
	return result, err
}

// mark sets the status of l's inbox row, which is made where there is none. It
// reports false, and leaves the row alone, if that is done.
func (b *Box) mark(ctx context.Context, tx pgx.Tx, status string, m *message, l Letter) (bool, error) {
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
		 WHERE inbox.status <> 'done'`,
		l.Subscription, l.EventID, l.Type, l.AggregateType, l.AggregateID, l.Version, messageID, published, status)
	if err != nil {
		return false, fmt.Errorf("write inbox: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// Discard gives l up: its row asks for nobody's attention any more, the audit
// entry keeps its message, and its messages are acknowledged. The read model
// lacks the event until its aggregate's next one shows the gap. An event that
// is done stays so.
func (h *Hand) Discard(ctx context.Context, o audit.Order, l Letter) error {
	m := h.first(l)
	s := l.subject()
	var err error
	if s.Record, err = record(m); err != nil {
		return fmt.Errorf("discard: %w", err)
	}
	writing, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err = pgx.BeginFunc(writing, h.box.db, func(tx pgx.Tx) error {
		if l.EventID != uuid.Nil {
			if _, err := h.box.mark(writing, tx, "discarded", m, l); err != nil {
				return err
			}
		}
		return audit.Write(writing, tx, "discard", o, s)
	})
	if err != nil {
		return fmt.Errorf("discard: %w", err)
	}
	return h.acknowledge(ctx, l)
}
