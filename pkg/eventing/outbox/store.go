package outbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing"
)

// store holds every statement that the relay runs. Times are the database's:
// instances' clocks differ.
type store struct{ db *pgxpool.Pool }

// queryTimeout bounds each statement. It is well below the lease, so that a
// stuck database is noticed while the lease still holds.
const queryTimeout = 5 * time.Second

// run is the claimed events of one aggregate, in version order. The first is
// the aggregate's oldest unpublished event.
type run []claimed

type claimed struct {
	eventing.Event
	attempts int
}

// claim leases the oldest pending events of up to aggregates aggregates, each
// with up to perAggregate versions, under token.
//
// An aggregate's oldest unpublished row is its mutex: whoever holds that row's
// lease owns the aggregate, and the rows behind it are leased along. A row that
// has an older unpublished one is never claimed by itself, so two relays cannot
// hold different versions of one aggregate.
func (s store) claim(ctx context.Context, token string, lease time.Duration, aggregates, perAggregate int) ([]run, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, err := s.db.Query(ctx, `
		WITH head AS (
			SELECT o.aggregate_type, o.aggregate_id
			  FROM outbox o
			 WHERE o.published_at IS NULL
			   AND o.parked_at IS NULL
			   AND (o.next_retry_at IS NULL OR o.next_retry_at <= now())
			   AND (o.locked_at IS NULL OR o.locked_at <= now() - $2::interval)
			   AND NOT EXISTS (
			       SELECT FROM outbox older
			        WHERE older.published_at IS NULL
			          AND older.aggregate_type = o.aggregate_type
			          AND older.aggregate_id = o.aggregate_id
			          AND older.version < o.version)
			 ORDER BY o.occurred_at, o.id
			 LIMIT $3
			   FOR UPDATE SKIP LOCKED
		), batch AS (
			SELECT next.id
			  FROM head h
			 CROSS JOIN LATERAL (
			       SELECT n.id
			         FROM outbox n
			        WHERE n.published_at IS NULL
			          AND n.aggregate_type = h.aggregate_type
			          AND n.aggregate_id = h.aggregate_id
			        ORDER BY n.version
			        LIMIT $4) next
		)
		UPDATE outbox o
		   SET lock_token = $1, locked_at = now()
		  FROM batch
		 WHERE o.id = batch.id
		   AND o.published_at IS NULL
		RETURNING o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.version, o.schema_version,
		          o.payload, o.occurred_at, o.tenant_id, o.epoch, o.traceparent, o.publish_attempts`,
		token, lease, aggregates, perAggregate)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	events, err := pgx.CollectRows(rows, scanClaimed)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return runs(events), nil
}

func scanClaimed(row pgx.CollectableRow) (claimed, error) {
	var c claimed
	err := row.Scan(&c.ID, &c.AggregateType, &c.AggregateID, &c.Type, &c.Version, &c.SchemaVersion,
		&c.Payload, &c.OccurredAt, &c.TenantID, &c.Epoch, &c.TraceParent, &c.attempts)
	c.OccurredAt = c.OccurredAt.UTC()
	return c, err
}

// runs groups events by aggregate, each in version order.
func runs(events []claimed) []run {
	slices.SortFunc(events, func(a, b claimed) int {
		if c := strings.Compare(a.Key(), b.Key()); c != 0 {
			return c
		}
		return int(a.Version - b.Version)
	})
	var out []run
	for start, i := 0, 1; i <= len(events); i++ {
		if i == len(events) || events[i].Key() != events[start].Key() {
			out = append(out, events[start:i])
			start = i
		}
	}
	return out
}

// renew extends the lease of everything held under token and returns how many
// rows that is.
func (s store) renew(ctx context.Context, token string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	tag, err := s.db.Exec(ctx, `UPDATE outbox SET locked_at = now() WHERE lock_token = $1`, token)
	if err != nil {
		return 0, fmt.Errorf("renew lease: %w", err)
	}
	return tag.RowsAffected(), nil
}

// rejection is an event that the broker refused, and what follows from it.
type rejection struct {
	id     uuid.UUID
	reason string
	retry  time.Duration
	park   bool
}

// settle writes back a round in one transaction: published are marked,
// rejections spend an attempt, everything else under token is handed back as it
// was. The token is the fence: rows that another relay has taken over since are
// left alone, and the number of published rows lost that way is returned.
func (s store) settle(ctx context.Context, token string, published []uuid.UUID, rejected []rejection) (lost int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(`
		UPDATE outbox
		   SET published_at = clock_timestamp(), lock_token = NULL, locked_at = NULL, last_error = NULL
		 WHERE id = ANY($1) AND lock_token = $2`, published, token)
	for _, r := range rejected {
		b.Queue(`
			UPDATE outbox
			   SET publish_attempts = publish_attempts + 1, last_error = $3,
			       next_retry_at = now() + $4::interval,
			       parked_at = CASE WHEN $5 THEN now() END,
			       lock_token = NULL, locked_at = NULL
			 WHERE id = $1 AND lock_token = $2`, r.id, token, r.reason, r.retry, r.park)
	}
	b.Queue(`UPDATE outbox SET lock_token = NULL, locked_at = NULL WHERE lock_token = $1`, token)
	results := s.db.SendBatch(ctx, b)
	tag, err := results.Exec()
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return 0, fmt.Errorf("settle: %w", err)
	}
	return int64(len(published)) - tag.RowsAffected(), nil
}

// backlog is how the outbox stands.
type backlog struct {
	// pending is capped at backlogCap, so that counting stays cheap however
	// long the backlog is.
	pending int64
	// oldest is the age of the oldest event that is neither published nor
	// parked; zero when there is none.
	oldest time.Duration
	parked int64
}

const backlogCap = 10_000

func (s store) backlog(ctx context.Context) (backlog, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var b backlog
	err := s.db.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM (SELECT FROM outbox WHERE published_at IS NULL LIMIT $1) p),
		       (SELECT count(*) FROM (SELECT FROM outbox WHERE published_at IS NULL AND parked_at IS NOT NULL LIMIT $1) p),
		       coalesce((SELECT greatest(now() - occurred_at, interval '0')
		                   FROM outbox
		                  WHERE published_at IS NULL AND parked_at IS NULL
		                  ORDER BY occurred_at LIMIT 1), interval '0')`, backlogCap).
		Scan(&b.pending, &b.parked, &b.oldest)
	if err != nil {
		return backlog{}, fmt.Errorf("read backlog: %w", err)
	}
	return b, nil
}
