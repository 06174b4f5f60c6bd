package deadletter

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

// Discard gives l up. The row of l then needs no action any more, the audit entry keeps the
// message, and the messages of l are acknowledged. Before that, the aggregate takes the owner's
// state, which includes the event's change. Otherwise a gap could stay, because a later event that
// reveals the gap may never come. If the owner is unavailable, or if its answer may be from before the
// event, Discard changes nothing. If the status of the row is done, the row keeps this status.
func (b *Batch) Discard(ctx context.Context, o audit.Actor, l Letter) error {
	s := b.about(l)
	var err error
	if s.Record, err = record(b.first(l)); err != nil {
		return fmt.Errorf("discard: %w", err)
	}
	if err := b.catchUp(ctx, l); err != nil {
		return fmt.Errorf("discard: %w", err)
	}
	err = b.queue.db.Tx(ctx, "discard", func(ctx context.Context, tx pgx.Tx) error { return b.giveUp(ctx, tx, "discard", o, l, s) })
	if err != nil {
		return err
	}
	return b.acknowledgeSettled(ctx, l)
}

// Erase gives l up for a person whose data is erased. It does the same as Discard, with two exceptions. The audit
// entry does not keep the message. And the messages are acknowledged before the row is committed as settled. If the
// process ends in between, the row is still dead, so that the letter counts as left. A settled row would hide its
// message, which comes back later. While another session has locked the row, Erase acknowledges nothing.
func (b *Batch) Erase(ctx context.Context, o audit.Actor, l Letter) error {
	s := b.about(l)
	if err := b.catchUp(ctx, l); err != nil {
		return fmt.Errorf("erase: %w", err)
	}
	return b.queue.db.Tx(ctx, "erase", func(ctx context.Context, tx pgx.Tx) error {
		if err := b.giveUp(ctx, tx, "erase", o, l, s); err != nil {
			return err
		}
		return b.acknowledge(ctx, l)
	})
}

// about is the subject of an audit entry that gives l up.
func (b *Batch) about(l Letter) audit.Subject {
	s := l.subject()
	s.AggregateType, s.AggregateID = b.Aggregate(l)
	return s
}

// giveUp settles the row of l, and writes an audit entry. If another operator has settled the row meanwhile,
// and no message of l is leased, then giveUp does nothing and writes no entry.
func (b *Batch) giveUp(ctx context.Context, tx pgx.Tx, action string, o audit.Actor, l Letter, s audit.Subject) error {
	if l.EventID != uuid.Nil {
		m := b.first(l)
		settled, err := b.queue.mark(ctx, tx, "discarded", m, l)
		if err != nil && !errors.Is(err, ErrIDTaken) || err == nil && !settled && m == nil {
			return err
		}
	}
	return audit.Write(ctx, tx, action, o, s)
}

// catchUp brings l's aggregate to its owner's state. It changes nothing
// if l is not an event, or if the owner does not have the aggregate.
func (b *Batch) catchUp(ctx context.Context, l Letter) error {
	if l.EventID == uuid.Nil {
		return nil
	}
	// Without a message the event has no epoch, so any state of the owner is accepted.
	e := eventing.Event{ID: l.EventID, AggregateType: l.AggregateType, AggregateID: l.AggregateID, Version: l.Version}
	if m := b.first(l); m != nil {
		e = m.event
		// The owner's answer has to be later than the event. If the event's time is far in the future, no
		// answer is later. But the event is older than its message, so the message's time is enough.
		if m.published.Before(e.OccurredAt) {
			e.OccurredAt = m.published
		}
	}
	err := b.queue.repair(ctx, e)
	if err != nil && !errors.Is(err, inbox.ErrLost) && !eventing.IsPermanent(err) {
		return err
	}
	b.queue.handler.Committed(ctx, consistency.PositionOf(e).Unknown())
	return nil
}
