package inbox

import (
	"context"
	"errors"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// These are the statements that every inbox needs, on our tables.
const (
	bareDedup = `
		INSERT INTO inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time,
		                   status, processed_at)
		SELECT $1, e, 'VideoUpdated', 'video', v::text, n, 'm', now(), 'done', now()
		  FROM unnest($2::uuid[], $3::uuid[], $4::bigint[]) AS b (e, v, n)
		ON CONFLICT DO NOTHING`
	bareUpsert = `
		INSERT INTO video_projection AS p (video_id, uploader_id, title, description, version, created_at, updated_at)
		SELECT v, v, t, 'a description', n, now(), now() FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS b (v, t, n)
		ON CONFLICT (video_id) DO UPDATE SET title = excluded.title, version = excluded.version, updated_at = now()
		WHERE p.version < excluded.version`
)

// bareSQL measures the database alone. It takes prepared batches of 500 events, in which each video
// has one event. For each batch it runs the insert into the inbox and the upsert of the projection.
func bareSQL(ctx context.Context, m *rig.ReadModel, messages []*pubsub.Message) (float64, error) {
	const perBatch = 500
	type columns struct {
		events, videos []uuid.UUID
		titles         []string
		versions       []int64
	}
	var batches []columns
	for rest := messages; len(rest) > 0; {
		n := min(perBatch, len(rest))
		var b columns
		for _, message := range rest[:n] {
			e, title, err := decodeTitle(message)
			if err != nil {
				return 0, err
			}
			b.events, b.videos = append(b.events, e.ID), append(b.videos, uuid.MustParse(e.AggregateID))
			b.titles, b.versions = append(b.titles, title), append(b.versions, e.Version)
		}
		batches, rest = append(batches, b), rest[n:]
	}
	start := time.Now()
	for _, b := range batches {
		err := pgx.BeginFunc(ctx, m.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, bareDedup, rig.Topic, b.events, b.videos, b.versions); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, bareUpsert, b.videos, b.titles, b.versions)
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return measure.PerSecond(len(messages), start), nil
}

// bareReceive measures receiving and acknowledging alone, with the flow control of our consumer.
func bareReceive(ctx context.Context, _ *rig.ReadModel, b *rig.BrokerClient, n int) (float64, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sub := b.Client.Subscriber(rig.Topic)
	sub.ReceiveSettings.MaxOutstandingBytes, sub.ReceiveSettings.MaxOutstandingMessages = 64<<20, 10_000
	got := make(chan struct{}, n)
	ended := make(chan error, 1)
	start := time.Now()
	go func() {
		ended <- sub.Receive(ctx, func(_ context.Context, m *pubsub.Message) {
			m.Ack()
			got <- struct{}{}
		})
	}()
	for range n {
		select {
		case <-got:
		case err := <-ended:
			return 0, errors.Join(errors.New("receiving ended"), err)
		}
	}
	rate := measure.PerSecond(n, start)
	stop()
	return rate, <-ended
}
