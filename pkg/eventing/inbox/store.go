package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// noEvent is the id of a message that is no event.
var noEvent = uuid.Nil

// queryTimeout bounds the statements that run outside of a batch.
const queryTimeout = 5 * time.Second

// store holds every statement on the inbox.
type store struct {
	db       *pgxpool.Pool
	consumer string
}

// accept writes the inbox rows of batch and returns the events that are not done
// yet. It locks the rows, in the order of their ids: a second consumer with one
// of these events waits here, and then finds it done.
func (s store) accept(ctx context.Context, tx pgx.Tx, batch []*delivery) (map[uuid.UUID]bool, error) {
	n := len(batch)
	ids, types, aggTypes, aggIDs := make([]uuid.UUID, n), make([]string, n), make([]string, n), make([]string, n)
	versions, messages, times := make([]int64, n), make([]string, n), make([]time.Time, n)
	for i, d := range batch {
		ids[i], types[i], aggTypes[i], aggIDs[i] = d.event.ID, d.event.Type, d.event.AggregateType, d.event.AggregateID
		versions[i], messages[i], times[i] = d.event.Version, d.message().ID, d.message().PublishTime
	}
	rows, err := tx.Query(ctx, `
		INSERT INTO inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version,
		                   message_id, publish_time, status, processed_at)
		SELECT $1, e.*, 'done', clock_timestamp()
		  FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::timestamptz[])
		       AS e (event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time)
		 ORDER BY e.event_id
		ON CONFLICT (consumer, event_id) DO UPDATE
		   SET status = 'done', processed_at = clock_timestamp(), message_id = excluded.message_id
		 WHERE inbox.status <> 'done'
		RETURNING event_id`,
		s.consumer, ids, types, aggTypes, aggIDs, versions, messages, times)
	if err != nil {
		return nil, fmt.Errorf("write inbox: %w", err)
	}
	fresh := make(map[uuid.UUID]bool, n)
	var id uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		fresh[id] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("write inbox: %w", err)
	}
	return fresh, nil
}

// hold takes back, within tx, what accept wrote of events that have a gap.
func (s store) hold(ctx context.Context, tx pgx.Tx, gaps []uuid.UUID) error {
	if len(gaps) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		UPDATE inbox SET status = 'held', processed_at = NULL, last_error = 'gap: waiting for a repair'
		 WHERE consumer = $1 AND event_id = ANY($2)`, s.consumer, gaps)
	if err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	return nil
}

// attempt counts a failure of d's own and returns how many there have been.
func (s store) attempt(ctx context.Context, d *delivery, cause error) (int, error) {
	return s.unsettled(ctx, d, "held", cause, 1)
}

// die writes down that d is in the dead letters.
func (s store) die(ctx context.Context, d *delivery, reason error) error {
	_, err := s.unsettled(ctx, d, "dead", reason, 0)
	return err
}

func (s store) unsettled(ctx context.Context, d *delivery, status string, cause error, attempts int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var total int
	// A row that is done stays so: another consumer was luckier meanwhile.
	err := s.db.QueryRow(ctx, `
		INSERT INTO inbox AS i (consumer, event_id, event_type, aggregate_type, aggregate_id, version,
		                        message_id, publish_time, status, attempts, last_error)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT (consumer, event_id) DO UPDATE
		   SET status = CASE WHEN i.status = 'done' THEN i.status ELSE excluded.status END,
		       attempts = i.attempts + excluded.attempts,
		       last_error = excluded.last_error
		RETURNING attempts`,
		s.consumer, d.event.ID, d.event.Type, d.event.AggregateType, d.event.AggregateID, d.event.Version,
		d.message().ID, d.message().PublishTime, status, attempts, truncate(cause.Error())).Scan(&total)
	if err != nil {
		return 0, fmt.Errorf("write inbox: %w", err)
	}
	return total, nil
}
