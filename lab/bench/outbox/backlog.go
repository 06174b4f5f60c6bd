package outbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/pkg/eventing"
)

// backlog describes the events that wait: the versions of some aggregates. The events are in the
// order of their versions.
type backlog struct{ aggregates, versions int }

// events is the number of events.
func (b backlog) events() int { return b.aggregates * b.versions }

// id returns the id of an event that fill has made. aggregate counts from 0.
func (b backlog) id(aggregate, version int) uuid.UUID {
	made := uuid.MustParse("00000000-0000-7000-8000-000000000000")
	binary.BigEndian.PutUint32(made[12:], uint32(version*b.aggregates+aggregate))
	return made
}

// key returns the id of an aggregate.
func (backlog) key(aggregate int) string { return "aggregate-" + strconv.Itoa(aggregate) }

// plainTables creates two further outbox tables. One is the plain loop's table, unchanged except
// for its schema. The other one has only the simplest index with which a claim finds its rows.
func plainTables(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, plainOutboxes)
	return err
}

const plainOutboxes = `
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

// The tables that a backlog is in: ours, the plain loop's, and that of the simplest statements.
const (
	ourOutbox   = "video.outbox"
	plainOutbox = "video.app_outbox"
	bareOutbox  = "video.bare_outbox"
)

// fill returns a function that inserts the backlog into the table.
func (b backlog) fill(table string) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		if err := plainTables(ctx, conn); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, `
			INSERT INTO `+table+` (id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at)
			SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(v * $1 + a), 12, '0'))::uuid, 'video',
			       'aggregate-' || a, 'VideoUpdated', v, $3, now() + (v * $1 + a) * interval '1 microsecond'
			  FROM generate_series(1, $2::int) v, generate_series(0, $1::int - 1) a`, b.aggregates, b.versions, rig.Payload)
		if err != nil {
			return fmt.Errorf("%s: %w", table, err)
		}
		_, err = conn.Exec(ctx, `VACUUM (ANALYZE) `+table)
		return err
	}
}

// database returns a new database with the backlog in the table. The caller must drop the database.
func (b backlog) database(ctx context.Context, p *rig.Postgres, table string) (*rig.Database, error) {
	return p.CopyOf(ctx, fmt.Sprintf("%d aggregates, %d versions in %s", b.aggregates, b.versions, table), b.fill(table))
}

// pool returns a new database with the backlog in the table, and a pool with as many connections as a
// service has. The caller must close the pool, and then drop the database.
func (b backlog) pool(ctx context.Context, p *rig.Postgres, table string) (*rig.Database, *pgxpool.Pool, error) {
	d, err := b.database(ctx, p, table)
	if err != nil {
		return nil, nil, err
	}
	pool, err := d.Pool(ctx, rig.ServiceConns)
	if err != nil {
		return nil, nil, errors.Join(err, d.Drop(ctx))
	}
	return d, pool, nil
}

// row is an event as a hand-written loop reads it.
type row struct {
	ID            uuid.UUID
	AggregateType string
	AggregateID   string
	EventType     string
	Version       int64
	SchemaVersion int
	Payload       []byte
	OccurredAt    time.Time
}

// columns are the columns of the table o that make a row.
const columns = `o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.version, o.schema_version, o.payload, o.occurred_at`

// message returns a message with the attributes that the plain loop sends.
func (r row) message() *pubsubpb.PubsubMessage {
	return &pubsubpb.PubsubMessage{Data: r.Payload, OrderingKey: r.AggregateID, Attributes: map[string]string{
		eventing.AttrEventID:       r.ID.String(),
		eventing.AttrEventType:     r.EventType,
		eventing.AttrAggregateID:   r.AggregateID,
		eventing.AttrVersion:       strconv.FormatInt(r.Version, 10),
		eventing.AttrSchemaVersion: strconv.Itoa(r.SchemaVersion),
		eventing.AttrOccurredAt:    r.OccurredAt.Format(time.RFC3339Nano),
	}}
}
