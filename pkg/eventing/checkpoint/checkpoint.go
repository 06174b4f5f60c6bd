package checkpoint

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/instrument"
)

const (
	// queryTimeout bounds a statement that is not part of a caller's transaction.
	queryTimeout = 5 * time.Second
	// keepInstances is how long the row of an instance that no longer saves is kept. Forget deletes
	// the row when the group's newest save is younger than the row by more than that.
	keepInstances = 7 * 24 * time.Hour
	// logEvery is the least time between two log lines about saves.
	logEvery = time.Minute
)

// Names are the names of a group's checkpoints.
type Names struct {
	// Table is the name of the table, which is found through the connection's search_path.
	Table string
	// Group is the consumer group. Subscription is the short name of the group's subscription.
	Group, Subscription string
	// Metrics is the prefix of the metrics.
	Metrics string
}

// Offset is a message's place in a subscription.
type Offset struct {
	MessageID   string    `json:"message_id"`
	PublishTime time.Time `json:"publish_time"`
}

// Store keeps the checkpoints of one group. A nil Store keeps none.
type Store struct {
	db     bounded.Pool
	names  Names
	table  string // quoted
	by     string
	log    *slog.Logger
	logged atomic.Int64 // the time of the last log line about a save, in nanoseconds

	group          metric.MeasurementOption
	lag            metric.Int64Gauge
	saves, failure metric.Int64Counter
}

// New returns the checkpoints of a group in db. by is the name of the writer in the table, such
// as a revision or a host.
func New(db *pgxpool.Pool, names Names, by string, log *slog.Logger) *Store {
	meter := instrument.For("example.com/lockstep/pkg/eventing/checkpoint")
	s := &Store{
		db: bounded.Pool{DB: db, Limit: queryTimeout}, names: names, table: pgx.Identifier{names.Table}.Sanitize(), by: by,
		log:     log.With("component", "checkpoint", "group", names.Group),
		group:   metric.WithAttributes(attribute.String("consumer_group", names.Group)),
		lag:     meter.Set(names.Metrics+".lag_ms", "{ms}", "Age of the last batch's newest message when its offset was saved"),
		saves:   meter.Counter(names.Metrics+".save", "{batch}", "Offsets saved, each with the effects of its batch"),
		failure: meter.Counter(names.Metrics+".failure", "{batch}", "Offsets that could not be saved: the batch is tried again"),
	}
	instrument.Begin(s.saves, s.group)
	instrument.Begin(s.failure, s.group)
	return s
}

// Saved is a save in a transaction that has not ended yet.
type Saved struct {
	store    *Store
	instance string
	offset   Offset
	written  bool
	lag      int64
}

// Save adds a statement to b that saves an instance's offset. The caller sends b within the
// transaction of the effects, before other statements, and then calls [Saved.End]. The position
// only moves forward. A repeated or earlier offset does not change the position, and is no error.
// newest is the publish time of the newest message whose effects the transaction has. The saved lag
// is the age of that message.
func (s *Store) Save(b *pgx.Batch, instance string, o Offset, newest time.Time) *Saved {
	if s == nil {
		return nil
	}
	saved := &Saved{store: s, instance: instance, offset: o}
	b.Queue(`
		INSERT INTO `+s.table+` AS o (consumer_group, instance, subscription, message_id, publish_time, lag_millis, updated_by)
		VALUES ($1, $2, $3, $4, $5, greatest(0, 1000 * extract(epoch FROM clock_timestamp() - $7))::bigint, $6)
		ON CONFLICT (consumer_group, instance) DO UPDATE
		   SET message_id = CASE WHEN excluded.publish_time > o.publish_time THEN excluded.message_id ELSE o.message_id END,
		       publish_time = greatest(o.publish_time, excluded.publish_time),
		       lag_millis = excluded.lag_millis, updated_at = clock_timestamp(), updated_by = excluded.updated_by
		RETURNING lag_millis`,
		s.names.Group, instance, s.names.Subscription, o.MessageID, o.PublishTime, s.by, newest).
		QueryRow(func(row pgx.Row) error {
			if err := row.Scan(&saved.lag); err != nil {
				return fmt.Errorf("save offset: %w", err)
			}
			saved.written = true
			return nil
		})
	return saved
}

// End records the end of the save's transaction. err is the error of that transaction, or nil.
func (s *Saved) End(ctx context.Context, err error) {
	switch {
	case s == nil:
	case err == nil:
		s.store.committed(ctx, s)
	case !s.written:
		s.store.failure.Add(ctx, 1, s.store.group)
	}
}

func (s *Store) committed(ctx context.Context, saved *Saved) {
	s.saves.Add(ctx, 1, s.group)
	s.lag.Record(ctx, saved.lag, s.group)
	now, last := time.Now().UnixNano(), s.logged.Load()
	if now-last > int64(logEvery) && s.logged.CompareAndSwap(last, now) {
		s.log.DebugContext(ctx, "offset saved", "message_id", saved.offset.MessageID, "publish_time", saved.offset.PublishTime,
			"lag_ms", saved.lag, "instance", saved.instance, "updated_by", s.by)
	}
}

// Forget deletes the row of each instance whose last save is older than the group's newest save by more
// than keepInstances. A save in the future, from before the clock was set back, does not count as the
// newest save.
func (s *Store) Forget(ctx context.Context) error {
	if s == nil {
		return nil
	}
	_, err := s.db.Statement("forget instances", `
		DELETE FROM `+s.table+` WHERE consumer_group = $1 AND source = 'save'
		   AND updated_at < (
		       SELECT max(updated_at) FROM `+s.table+` WHERE consumer_group = $1 AND updated_at <= clock_timestamp()) - $2::interval`,
		s.names.Group, keepInstances).Exec(ctx)
	return err
}
