package inbox

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
)

// This file has the statements on inbox rows within the transaction of a batch.

// accepted are the deliveries of a batch whose events are not done yet.
type accepted struct {
	notDone map[*delivery]bool
	// refused are those of notDone whose rows are dead or discarded.
	refused map[*delivery]bool
}

// accept writes the inbox rows of batch and returns the events that were not done yet. It locks all of the
// rows, in the order of their ids. So a second consumer with one of these events waits here, and then finds
// the event done. A row that is dead or discarded keeps its status until settle. Another instance may have
// published the dead letter and acknowledged the message. If accept made such a row held, the event then
// waited for its owner, and this process ended, no message would come again, and the row would stay held
// for ever. If a row with an event's id is of another event, accept fails, whatever the row's status,
// because the producer has used the id twice. The statement goes to the server together with the statements
// in first, which begin the transaction. The caller must end tx, even if accept returns an error.
func (s store) accept(ctx context.Context, first *pgx.Batch, batch []*delivery) (tx pgx.Tx, a accepted, err error) {
	first.Queue(`
		INSERT INTO inbox AS i (`+rowColumns+`, status, processed_at)
		SELECT $1, e.*, 'done', clock_timestamp() FROM `+rowsOf+` ORDER BY e.event_id
		ON CONFLICT (consumer, event_id) DO UPDATE
		   SET status = 'done', processed_at = clock_timestamp(), last_seen_at = clock_timestamp(),
		       message_id = excluded.message_id, begun = 0, source = 'stream'
		 WHERE i.status = 'held' AND `+sameAs("excluded")+`
		RETURNING event_id, aggregate_type, aggregate_id, version`, s.rows(batch)...).
		Query(func(rows pgx.Rows) (err error) {
			a.notDone, err = matching(rows, batch)
			return err
		})
	planEachTime(first)
	results := s.db.SendBatch(ctx, first)
	tx = results.Tx()
	if err = results.Close(); err == nil && len(a.notDone) < len(batch) {
		a.refused, err = s.seeAgain(ctx, tx, a.notDone, batch)
		maps.Copy(a.notDone, a.refused)
	}
	if err != nil {
		return tx, accepted{}, fmt.Errorf("write inbox: %w", err)
	}
	return tx, a, nil
}

// seeAgain handles the events of batch that are not in notDone. It writes in the inbox row of each that the
// event was delivered again. Of these events, refused has those with a row that is dead or discarded, and
// the rest are done. seeAgain fails if the inbox row with an event's id is of another event.
func (s store) seeAgain(
	ctx context.Context, tx pgx.Tx, notDone map[*delivery]bool, batch []*delivery,
) (refused map[*delivery]bool, err error) {
	seen := byID(slices.DeleteFunc(slices.Clone(batch), func(d *delivery) bool { return notDone[d] }))
	rows, _ := tx.Query(ctx, `
		UPDATE inbox SET last_seen_at = clock_timestamp(), begun = 0 WHERE consumer = $1 AND event_id = ANY($2)
		RETURNING event_id, aggregate_type, aggregate_id, version, status = 'done'`,
		s.consumer, uuidArray(slices.Collect(maps.Keys(seen))...))
	refused = map[*delivery]bool{}
	var e eventing.Event
	var done bool
	_, err = pgx.ForEachRow(rows, []any{&e.ID, &e.AggregateType, &e.AggregateID, &e.Version, &done}, func() error {
		for _, d := range seen[e.ID] {
			if !d.is(e) {
				return eventing.Permanent(fmt.Errorf("event_id: it is that of version %d of %s, too", e.Version, e.Key()))
			}
			refused[d] = !done
		}
		return nil
	})
	maps.DeleteFunc(refused, func(_ *delivery, is bool) bool { return !is })
	return refused, err
}

// settle sets the rows of accepted events by their outcomes, within tx. accept has set the rows of all but the refused
// events to done. An event that needs its owner's state becomes held, or stays refused. Any other refused event becomes
// done. accept has checked that the rows belong to these events. settle sets the planner's settings again, because the
// handler may have changed them. If the handler has run txn.KeepPlans, a plan from before the inbox filled up would read
// all events of the consumer.
func (s store) settle(ctx context.Context, tx pgx.Tx, a accepted, outcomes map[uuid.UUID]Outcome) error {
	var held []uuid.UUID
	var done []*delivery
	for d := range a.notDone {
		switch waits := outcomes[d.id()].needsOwner(); {
		case waits && !a.refused[d]:
			held = append(held, d.id())
		case !waits && a.refused[d]:
			done = append(done, d)
		}
	}
	if len(held)+len(done) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	planEachTime(b)
	b.Queue(`
		UPDATE inbox SET status = 'held', processed_at = NULL, last_error = 'waiting for a repair from the owner'
		 WHERE consumer = $1 AND event_id = ANY($2)`, s.consumer, uuidArray(held...))
	b.Queue(`
		UPDATE inbox i SET status = 'done', processed_at = clock_timestamp(), message_id = e.message_id, begun = 0, source = 'stream' `+
		joinedRows, s.rows(done)...)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("settle inbox: %w", err)
	}
	return nil
}

// byID groups a batch by the ids of its events. Several different events may have one id.
func byID(batch []*delivery) map[uuid.UUID][]*delivery {
	all := make(map[uuid.UUID][]*delivery, len(batch))
	for _, d := range batch {
		all[d.id()] = append(all[d.id()], d)
	}
	return all
}

// matching returns the deliveries of batch whose events are in rows.
func matching(rows pgx.Rows, batch []*delivery) (map[*delivery]bool, error) {
	all, own := byID(batch), map[*delivery]bool{}
	var e eventing.Event
	_, err := pgx.ForEachRow(rows, []any{&e.ID, &e.AggregateType, &e.AggregateID, &e.Version}, func() error {
		for _, d := range all[e.ID] {
			if d.is(e) {
				own[d] = true
			}
		}
		return nil
	})
	return own, err
}
