// Package backlog fills outboxes with waiting events: the project's own, the
// source document's, and the simplest possible one.
package backlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/lab/bench/rig/postgres"
	"example.com/lockstep/lab/bench/rig/relay"
)

// Backlog is a number of waiting events: versions of aggregates, as if each
// event had been committed in turn.
type Backlog struct{ Aggregates, Versions int }

// Events is the number of events.
func (b Backlog) Events() int { return b.Aggregates * b.Versions }

// ID is the id of an event that fill has made; aggregates count from 0.
func (b Backlog) ID(aggregate, version int) uuid.UUID {
	id := uuid.MustParse("00000000-0000-7000-8000-000000000000")
	binary.BigEndian.PutUint32(id[12:], uint32(version*b.Aggregates+aggregate))
	return id
}

// Key is the id of an aggregate.
func (Backlog) Key(aggregate int) string { return "aggregate-" + strconv.Itoa(aggregate) }

// SourceTables creates the source document's outbox, unchanged except for its
// schema, and one with the simplest index that answers a claim.
func SourceTables(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, sourceOutboxes)
	return err
}

const sourceOutboxes = `
CREATE TABLE video.app_outbox (
  id               uuid PRIMARY KEY,
  aggregate_type   text        NOT NULL,
  aggregate_id     text        NOT NULL,
  event_type       text        NOT NULL,
  version          bigint      NOT NULL,
  schema_version   int         NOT NULL DEFAULT 1,
  payload          bytea       NOT NULL,
  occurred_at      timestamptz NOT NULL DEFAULT now(),
  published_at     timestamptz,
  publish_attempts int         NOT NULL DEFAULT 0,
  next_retry_at    timestamptz,
  lock_token       text,
  locked_at        timestamptz
);
CREATE INDEX ON video.app_outbox (published_at) WHERE published_at IS NULL;
CREATE INDEX ON video.app_outbox (next_retry_at) WHERE published_at IS NULL;
CREATE TABLE video.bare_outbox (LIKE video.app_outbox INCLUDING DEFAULTS);
ALTER TABLE video.bare_outbox ADD PRIMARY KEY (id);
CREATE INDEX ON video.bare_outbox (occurred_at) WHERE published_at IS NULL;
GRANT SELECT, INSERT, UPDATE ON video.app_outbox, video.bare_outbox TO video_service`

// fill inserts the backlog into the outbox and into the two others.
func (b Backlog) fill(ctx context.Context, conn *pgx.Conn) error {
	if err := SourceTables(ctx, conn); err != nil {
		return err
	}
	const rows = `
		INSERT INTO video.%s (id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at)
		SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(v * $1 + a), 12, '0'))::uuid, 'video',
		       'aggregate-' || a, 'VideoUpdated', v, $3, now() + (v * $1 + a) * interval '1 microsecond'
		  FROM generate_series(1, $2::int) v, generate_series(0, $1::int - 1) a`
	for _, table := range []string{"outbox", "app_outbox", "bare_outbox"} {
		if _, err := conn.Exec(ctx, fmt.Sprintf(rows, table), b.Aggregates, b.Versions, relay.Payload); err != nil {
			return fmt.Errorf("%s: %w", table, err)
		}
	}
	_, err := conn.Exec(ctx, `VACUUM (ANALYZE) video.outbox, video.app_outbox, video.bare_outbox`)
	return err
}

// OnDatabase measures on a new database that has the backlog.
func (b Backlog) OnDatabase(
	ctx context.Context, p *postgres.Server, once func(context.Context, *postgres.Database) (float64, error),
) (_ float64, err error) {
	d, err := p.CopyOf(ctx, fmt.Sprintf("%d aggregates, %d versions", b.Aggregates, b.Versions), b.fill)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Drop(ctx)) }()
	return once(ctx, d)
}

// OnPool is OnDatabase for measurements that need only connections.
func (b Backlog) OnPool(
	ctx context.Context, p *postgres.Server, once func(context.Context, *pgxpool.Pool) (float64, error),
) (float64, error) {
	return b.OnDatabase(ctx, p, func(ctx context.Context, d *postgres.Database) (float64, error) {
		pool, err := d.Pool(ctx, postgres.ServiceConns)
		if err != nil {
			return 0, err
		}
		defer pool.Close()
		return once(ctx, pool)
	})
}
