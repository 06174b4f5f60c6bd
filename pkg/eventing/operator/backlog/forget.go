package backlog

import "context"

// Contents are numbers of events that still have their payload in the outbox.
type Contents struct {
	Published int64
	// Waiting are not published: pending, or parked.
	Waiting int64
}

// Contents counts the events of these aggregates that have a payload.
func (b *Backlog) Contents(ctx context.Context, aggregateType string, ids []string) (c Contents, err error) {
	err = b.db.Statement("count payloads", `
		SELECT count(*) FILTER (WHERE published_at IS NOT NULL), count(*) FILTER (WHERE published_at IS NULL)
		  FROM outbox WHERE aggregate_type = $1 AND aggregate_id = ANY ($2::text[]) AND payload <> ''`, aggregateType, ids).
		Scan(ctx, &c.Published, &c.Waiting)
	return c, err
}

// Forget does with the published events of these aggregates as Purge does, whatever their
// age, and empties the newest of each: Append needs the row, and not the payload. It
// returns the number of events that waited when it began, also if they are published by
// now. They keep their payload: without it, or behind a later one, consumers could not apply
// them.
func (b *Backlog) Forget(ctx context.Context, aggregateType string, ids []string) (waiting int64, err error) {
	err = b.db.Statement("forget payloads", `
		WITH published AS MATERIALIZED (
			SELECT o.id, EXISTS (SELECT FROM outbox n
			         WHERE n.aggregate_type = o.aggregate_type AND n.aggregate_id = o.aggregate_id AND n.version > o.version) AS followed
			  FROM outbox o
			 WHERE o.aggregate_type = $1 AND o.aggregate_id = ANY ($2::text[]) AND o.published_at IS NOT NULL
			 ORDER BY o.aggregate_id, o.version
			   FOR UPDATE OF o
		), gone AS (
			DELETE FROM outbox WHERE id IN (SELECT id FROM published WHERE followed)
		), emptied AS (
			UPDATE outbox SET payload = '', last_error = NULL
			 WHERE id IN (SELECT id FROM published WHERE NOT followed) AND (payload <> '' OR last_error IS NOT NULL)
		)
		SELECT count(*)
		  FROM outbox
		 WHERE aggregate_type = $1 AND aggregate_id = ANY ($2::text[]) AND payload <> '' AND published_at IS NULL`,
		aggregateType, ids).Scan(ctx, &waiting)
	return waiting, err
}
