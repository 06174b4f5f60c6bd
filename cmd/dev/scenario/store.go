package scenario

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/live"
	"example.com/lockstep/internal/topics"
	"example.com/lockstep/pkg/eventing"
)

// one returns the single value that a query returns.
func one[T any](ctx context.Context, p *Pair, sql string, args ...any) (value T, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	err = p.db.QueryRow(ctx, sql, args...).Scan(&value)
	return value, err
}

// unsettled returns the number of videos whose state in catalog differs from the owner's state,
// plus the number of events of the videos that have not left the outbox.
func (p *Pair) unsettled(ctx context.Context, ids []uuid.UUID) (int64, error) {
	return one[int64](ctx, p, `
		SELECT (SELECT count(*) FROM video.videos v LEFT JOIN catalog.video_projection c USING (video_id)
		         WHERE v.video_id = ANY ($1) AND (c.version IS DISTINCT FROM v.version OR (c.deleted_at IS NULL) <> (v.deleted_at IS NULL)))
		     + (SELECT count(*) FROM video.outbox
		         WHERE aggregate_type = 'video' AND aggregate_id = ANY (SELECT unnest($1::uuid[])::text) AND published_at IS NULL)`, ids)
}

// record is the result of a comparison of some videos in both databases.
type record struct {
	Videos, Events int64
	// Lost counts the videos that their owner does not have, or has in an older version than it has
	// acknowledged.
	Lost int64
	// WithoutEvents counts the videos that do not have exactly one event for each version up to the
	// present version.
	WithoutEvents int64
	// Unapplied counts the events whose status in catalog's inbox is not done.
	Unapplied int64
	// Disordered counts the events that were published before an event of an earlier version.
	Disordered int64
}

func (p *Pair) account(ctx context.Context, acknowledged promised) (r record, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	ids, versions := make([]uuid.UUID, 0, len(acknowledged)), make([]int64, 0, len(acknowledged))
	for id, version := range acknowledged {
		ids, versions = append(ids, id), append(versions, version)
	}
	rows, _ := p.db.Query(ctx, `
		WITH events AS (
		  SELECT o.aggregate_id, o.version, i.status, i.publish_time,
		         lag(i.publish_time) OVER (PARTITION BY o.aggregate_id ORDER BY o.version) AS before
		    FROM video.outbox o LEFT JOIN catalog.inbox i ON i.consumer = $2 AND i.event_id = o.id
		   WHERE o.aggregate_type = 'video' AND o.version > 0 AND o.aggregate_id = ANY (SELECT unnest($1::uuid[])::text)
		), by_video AS (
		  SELECT v.version, count(e.version) AS n, max(e.version) AS newest
		    FROM video.videos v LEFT JOIN events e ON e.aggregate_id = v.video_id::text
		   WHERE v.video_id = ANY ($1) GROUP BY v.video_id
		)
		SELECT (SELECT count(*) FROM by_video) AS videos, (SELECT count(*) FROM events) AS events,
		       (SELECT count(*) FROM unnest($1::uuid[], $3::bigint[]) AS acknowledged (video_id, version)
		          LEFT JOIN video.videos v USING (video_id)
		         WHERE v.version IS NULL OR v.version < acknowledged.version) AS lost,
		       (SELECT count(*) FROM by_video WHERE n <> version OR newest <> version) AS without_events,
		       (SELECT count(*) FROM events WHERE status IS DISTINCT FROM 'done') AS unapplied,
		       (SELECT count(*) FROM events WHERE publish_time < before) AS disordered`,
		ids, topics.Subscription(topics.Video, topics.Catalog), versions)
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[record])
}

// pending counts the events of the videos that have not left the outbox.
func (p *Pair) pending(ctx context.Context, ids []uuid.UUID) (int64, error) {
	return one[int64](ctx, p, `SELECT count(*) FROM video.outbox
		WHERE aggregate_type = 'video' AND aggregate_id = ANY (SELECT unnest($1::uuid[])::text) AND published_at IS NULL`, ids)
}

// attempts returns the highest number of publish attempts that an event of the videos has used.
func (p *Pair) attempts(ctx context.Context, ids []uuid.UUID) (int64, error) {
	return one[int64](ctx, p, `SELECT coalesce(max(publish_attempts), 0) FROM video.outbox
		WHERE aggregate_type = 'video' AND aggregate_id = ANY (SELECT unnest($1::uuid[])::text)`, ids)
}

// parked returns the id of the parked event of a video, or nil if there is none.
func (p *Pair) parked(ctx context.Context, id uuid.UUID) (*uuid.UUID, error) {
	return one[*uuid.UUID](ctx, p, `SELECT max(id::text)::uuid FROM video.outbox
		WHERE aggregate_type = 'video' AND aggregate_id = $1 AND parked_at IS NOT NULL`, id.String())
}

// lose marks an event as published, although no relay has sent it. So the event is lost.
func (p *Pair) lose(ctx context.Context, id uuid.UUID, version int64) error {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	_, err := p.db.Exec(ctx, `UPDATE video.outbox SET published_at = now(), lock_token = NULL, locked_at = NULL, next_retry_at = NULL
		WHERE aggregate_type = 'video' AND aggregate_id = $1 AND version = $2`, id.String(), version)
	return err
}

// likes returns the number of likes that catalog has counted for a video.
func (p *Pair) likes(ctx context.Context, id uuid.UUID) (int64, error) {
	return one[int64](ctx, p, `SELECT coalesce(sum(likes), 0)::bigint FROM catalog.video_counters WHERE video_id = $1`, id)
}

func (p *Pair) inbox(ctx context.Context, id uuid.UUID, status string) (int64, error) {
	return one[int64](ctx, p, `SELECT count(*) FROM catalog.inbox WHERE consumer = $1 AND aggregate_id = $2 AND status = $3`,
		topics.Subscription(topics.Video, topics.Catalog), id.String(), status)
}

// events returns the events of the aggregates with the given type and ids. They are ordered by
// aggregate, then by version.
func (p *Pair) events(ctx context.Context, aggregateType string, ids ...string) ([]eventing.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	rows, _ := p.db.Query(ctx, `
		SELECT id, aggregate_type, aggregate_id, coalesce(previous_event_id, '00000000-0000-0000-0000-000000000000') AS previous_event_id,
		       event_type AS type, version, schema_version, payload, occurred_at, tenant_id, epoch, traceparent AS trace_parent
		  FROM video.outbox WHERE aggregate_type = $1 AND aggregate_id = ANY ($2) AND version > 0 ORDER BY aggregate_id, version`,
		aggregateType, ids)
	return pgx.CollectRows(rows, pgx.RowToStructByNameLax[eventing.Event])
}

// newest returns the number of video events that catalog received in the last minute and whose
// status in catalog's inbox is done.
func (p *Pair) newest(ctx context.Context) (int64, error) {
	return one[int64](ctx, p, `SELECT count(*) FROM catalog.inbox
		WHERE consumer = $1 AND status = 'done' AND received_at > now() - interval '1 minute'`,
		topics.Subscription(topics.Video, topics.Catalog))
}

// tables is the part of a frame that comes from both databases.
type tables struct {
	pending, parked, held, dead, rows int64
	newest                            []live.Event
}

// maxCounted is the number of rows at which a count stops. The page does not need the exact size of
// a large backlog.
const maxCounted = 10_000

func (p *Pair) look(ctx context.Context) (t tables, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	err = p.db.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM (SELECT FROM video.outbox_pending WHERE parked_at IS NULL LIMIT $1) AS few),
		       (SELECT count(*) FROM (SELECT FROM video.outbox WHERE parked_at IS NOT NULL LIMIT $1) AS few),
		       (SELECT count(*) FROM (SELECT FROM catalog.inbox WHERE status = 'held' LIMIT $1) AS few),
		       (SELECT count(*) FROM (SELECT FROM catalog.inbox WHERE status = 'dead' LIMIT $1) AS few),
		       (SELECT count(*) FROM (SELECT FROM catalog.video_projection LIMIT $1) AS few)`,
		maxCounted).Scan(&t.pending, &t.parked, &t.held, &t.dead, &t.rows)
	if err != nil {
		return t, err
	}
	rows, _ := p.db.Query(ctx, `
		WITH newest AS (
		  SELECT id, aggregate_type, aggregate_id, version, event_type, occurred_at, published_at, parked_at, xact
		    FROM video.outbox WHERE version > 0 ORDER BY xact DESC, uuid_send(id) DESC LIMIT $1
		)
		SELECT n.aggregate_type || ' ' || right(n.aggregate_id, 8) AS aggregate, n.version, n.event_type AS type,
		       CASE WHEN n.parked_at IS NOT NULL THEN 'parked' WHEN i.status = 'done' THEN 'applied'
		            WHEN i.status IS NOT NULL THEN i.status WHEN n.published_at IS NOT NULL THEN 'published' ELSE 'pending' END AS state,
		       coalesce(extract(epoch FROM n.published_at - n.occurred_at) * 1000, -1)::float8 AS published_ms,
		       coalesce(extract(epoch FROM i.processed_at - n.occurred_at) * 1000, -1)::float8 AS applied_ms
		  FROM newest n LEFT JOIN catalog.inbox i ON i.consumer = n.aggregate_type || '.events.catalog' AND i.event_id = n.id
		 ORDER BY n.xact DESC, n.version DESC`, live.MaxEvents)
	t.newest, err = pgx.CollectRows(rows, pgx.RowToStructByName[live.Event])
	return t, err
}
