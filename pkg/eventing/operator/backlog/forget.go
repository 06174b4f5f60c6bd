package backlog

import (
	"context"
	"fmt"
)

// Contents are numbers of events that still have their payload in the outbox.
type Contents struct {
	Published int64
	// Waiting are not published: pending, or parked.
	Waiting int64
}

const contents = `
	SELECT count(*) FILTER (WHERE published_at IS NOT NULL), count(*) FILTER (WHERE published_at IS NULL)
	  FROM outbox WHERE aggregate_type = $1 AND aggregate_id = ANY ($2::text[]) AND payload <> ''`

// Contents counts the events of these aggregates that have a payload.
func (b *Backlog) Contents(ctx context.Context, aggregateType string, ids []string) (c Contents, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	if err := b.db.QueryRow(ctx, contents, aggregateType, ids).Scan(&c.Published, &c.Waiting); err != nil {
		return c, fmt.Errorf("count payloads: %w", err)
	}
	return c, nil
}

// forgetBatch bounds the events, and with them the locks and the time, of one statement.
const forgetBatch = 1000

// Forget does with the published events of these aggregates as Purge does, whatever their
// age, and empties the newest of each: Append needs the row, and not the payload. It
// returns the number of events that waited when its last statement began, also if they are
// published by now. They keep their payload: without it, or behind a later one, consumers could
// not apply them.
func (b *Backlog) Forget(ctx context.Context, aggregateType string, ids []string) (waiting int64, err error) {
	for {
		forgotten, waiting, err := b.forget(ctx, aggregateType, ids)
		if err != nil {
			return 0, fmt.Errorf("forget payloads: %w", err)
		}
		if forgotten < forgetBatch {
			return waiting, nil
		}
	}
}

// forget does so with the first of them.
func (b *Backlog) forget(ctx context.Context, aggregateType string, ids []string) (forgotten, waiting int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err = b.db.QueryRow(ctx, `
		WITH published AS MATERIALIZED (
			SELECT o.id, f.followed
			  FROM outbox o, LATERAL (SELECT EXISTS (SELECT FROM outbox n
			         WHERE n.aggregate_type = o.aggregate_type AND n.aggregate_id = o.aggregate_id AND n.version > o.version) AS followed) AS f
			 WHERE o.aggregate_type = $1 AND o.aggregate_id = ANY ($2::text[]) AND o.published_at IS NOT NULL
			   AND (f.followed OR o.payload <> '' OR o.last_error IS NOT NULL)
			 ORDER BY o.aggregate_id, o.version
			 LIMIT $3
			   FOR UPDATE OF o
		), gone AS (
			DELETE FROM outbox WHERE id IN (SELECT id FROM published WHERE followed)
		), emptied AS (
			UPDATE outbox SET payload = '', last_error = NULL WHERE id IN (SELECT id FROM published WHERE NOT followed)
		)
		SELECT (SELECT count(*) FROM published),
		       (SELECT count(*) FROM outbox
		         WHERE aggregate_type = $1 AND aggregate_id = ANY ($2::text[]) AND payload <> '' AND published_at IS NULL)`,
		aggregateType, ids, forgetBatch).Scan(&forgotten, &waiting)
	return forgotten, waiting, err
}
