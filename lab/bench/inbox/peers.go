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

// The source document's tables and statements.
const (
	sourceTables = `
		CREATE SCHEMA catalog_read;
		CREATE TABLE catalog_read.video_projection (
		  video_id uuid PRIMARY KEY, title text, version bigint NOT NULL, updated_at timestamptz NOT NULL);
		CREATE TABLE catalog_read.inbox (event_id uuid PRIMARY KEY, received_at timestamptz NOT NULL)`
	sourceDedup  = `INSERT INTO catalog_read.inbox(event_id, received_at) VALUES ($1, now()) ON CONFLICT (event_id) DO NOTHING`
	sourceUpsert = `
		INSERT INTO catalog_read.video_projection(video_id, title, version, updated_at) VALUES ($1, $2, $3, now())
		ON CONFLICT (video_id) DO UPDATE SET title = EXCLUDED.title, version = EXCLUDED.version, updated_at = now()
		WHERE catalog_read.video_projection.version < EXCLUDED.version`
)

// sourceLoop is the loop of the source document's §4.1, unchanged.
func sourceLoop(workers int) applying {
	return func(ctx context.Context, m *rig.ReadModel, messages []*pubsub.Message) (float64, error) {
		if _, err := m.Admin.Exec(ctx, sourceTables); err != nil {
			return 0, err
		}
		lanes := make([][]*pubsub.Message, workers)
		n := 0
		for i, message := range messages {
			// One video of four, because the loop is that slow. All messages of
			// a video go to one lane.
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
					if err := sourceApply(ctx, m.Admin, message); err != nil {
						return fmt.Errorf("the source document's loop: %w", err)
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

func sourceApply(ctx context.Context, db *pgxpool.Pool, m *pubsub.Message) error {
	e, title, err := decodeTitle(m)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sourceDedup, e.ID); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sourceUpsert, e.AggregateID, title, e.Version)
		return err
	})
}
