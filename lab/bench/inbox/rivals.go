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
	"example.com/lockstep/lab/bench/rig/readmodel"
)

// The source document's tables and statements.
const (
	seedTables = `
		CREATE SCHEMA catalog_read;
		CREATE TABLE catalog_read.video_projection (
		  video_id uuid PRIMARY KEY, title text, version bigint NOT NULL, updated_at timestamptz NOT NULL);
		CREATE TABLE catalog_read.inbox (event_id uuid PRIMARY KEY, received_at timestamptz NOT NULL)`
	seedDedup  = `INSERT INTO catalog_read.inbox(event_id, received_at) VALUES ($1, now()) ON CONFLICT (event_id) DO NOTHING`
	seedUpsert = `
		INSERT INTO catalog_read.video_projection(video_id, title, version, updated_at) VALUES ($1, $2, $3, now())
		ON CONFLICT (video_id) DO UPDATE SET title = EXCLUDED.title, version = EXCLUDED.version, updated_at = now()
		WHERE catalog_read.video_projection.version < EXCLUDED.version`
)

// seedLoop is the loop of the source document's §4.1, unchanged.
func seedLoop(workers int) applying {
	return func(ctx context.Context, s *readmodel.Store, messages []*pubsub.Message) (float64, error) {
		if _, err := s.Admin.Exec(ctx, seedTables); err != nil {
			return 0, err
		}
		lanes := make([][]*pubsub.Message, workers)
		n := 0
		for i, m := range messages {
			// One video of four, because the loop is that slow. All messages of
			// a video go to one lane.
			if video := i % (len(messages) / eventsPerVideo); video%4 == 0 {
				lane := &lanes[video/4%workers]
				*lane = append(*lane, m)
				n++
			}
		}
		start := time.Now()
		working, ctx := errgroup.WithContext(ctx)
		for _, lane := range lanes {
			working.Go(func() error {
				for _, m := range lane {
					if err := seedApply(ctx, s.Admin, m); err != nil {
						return fmt.Errorf("seed's loop: %w", err)
					}
					m.Ack()
				}
				return nil
			})
		}
		err := working.Wait()
		return measure.PerSecond(n, start), err
	}
}

func seedApply(ctx context.Context, db *pgxpool.Pool, m *pubsub.Message) error {
	e, title, err := decodeTitle(m)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, seedDedup, e.ID); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, seedUpsert, e.AggregateID, title, e.Version)
		return err
	})
}
