package inbox

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// The plain loop's tables and statements.
const (
	plainTables = `
		CREATE SCHEMA catalog_read;
		CREATE TABLE catalog_read.video_projection (
		  video_id uuid PRIMARY KEY, title text, version bigint NOT NULL, updated_at timestamptz NOT NULL);
		CREATE TABLE catalog_read.inbox (event_id uuid PRIMARY KEY, received_at timestamptz NOT NULL)`
	plainDedup  = `INSERT INTO catalog_read.inbox(event_id, received_at) VALUES ($1, now()) ON CONFLICT (event_id) DO NOTHING`
	plainUpsert = `
		INSERT INTO catalog_read.video_projection(video_id, title, version, updated_at) VALUES ($1, $2, $3, now())
		ON CONFLICT (video_id) DO UPDATE SET title = EXCLUDED.title, version = EXCLUDED.version, updated_at = now()
		WHERE catalog_read.video_projection.version < EXCLUDED.version`
)

// plainLoop is the inbox pattern as it is usually written. Each message has its own transaction.
// The transaction inserts the event's id, and then updates the row if the version is newer.
func plainLoop(workers int) applying {
	return func(ctx context.Context, m *rig.ReadModel, messages []*pubsub.Message) (float64, error) {
		if _, err := m.Admin.Exec(ctx, plainTables); err != nil {
			return 0, err
		}
		lanes := make([][]*pubsub.Message, workers)
		n := 0
		for i, message := range messages {
			// Only every fourth video is used, because the loop is slow. All messages of a video go
			// to one lane.
			if video := i % (len(messages) / eventsPerVideo); video%4 == 0 {
				lane := &lanes[video/4%workers]
				*lane = append(*lane, message)
				n++
			}
		}
		start := time.Now()
		working, ctx := errgroup.WithContext(ctx)
		for _, lane := range lanes {
			working.Go(func() error {
				for _, message := range lane {
					if err := plainApply(ctx, m.Admin, message); err != nil {
						return fmt.Errorf("the plain loop: %w", err)
					}
					message.Ack()
				}
				return nil
			})
		}
		err := working.Wait()
		return measure.PerSecond(n, start), err
	}
}

func plainApply(ctx context.Context, db *pgxpool.Pool, m *pubsub.Message) error {
	e, title, err := decodeTitle(m)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, plainDedup, e.ID); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, plainUpsert, e.AggregateID, title, e.Version)
		return err
	})
}
