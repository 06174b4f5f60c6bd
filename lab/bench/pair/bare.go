package pair

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// These statements insert the rows that the pair writes for a video.
const (
	insertVideo = `
		INSERT INTO video.videos (video_id, uploader_id, title, description, duration_seconds, version, created_at, updated_at)
		VALUES ($1, $1, 'Lockstep in one minute', 'A description of some length, as people write them.', 60, 1, $2, $2)`
	insertEvent = `
		INSERT INTO video.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at)
		VALUES ($1, 'video', $2, 'VideoCreated', 1, $3, $4)`
	insertInbox = `
		INSERT INTO catalog.inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time,
		                           status, processed_at)
		VALUES ('bare', $1, 'VideoCreated', 'video', $2, 1, 'm', $3, 'done', $3)`
	insertProjection = `
		INSERT INTO catalog.video_projection (video_id, uploader_id, title, description, version, created_at, updated_at)
		VALUES ($1, $1, 'Lockstep in one minute', 'A description of some length, as people write them.', 1, $2, $2)`
)

// bareWrites returns the number of videos per second whose rows an administrator can insert. There
// is no check, claim, mark or broker.
func bareWrites(ctx context.Context, p *rig.Postgres, limit time.Duration) (_ float64, err error) {
	d, err := p.ForBoth(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Drop(ctx)) }()
	db, err := d.AdminPool(ctx, rig.Committers)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	write := func(ctx context.Context, _ int) error { return bareWrite(ctx, db) }
	if err := measure.Flood(ctx, rig.Committers, limit/4, write); err != nil { // connections prepare their statements
		return 0, err
	}
	var written atomic.Int64
	start := time.Now()
	err = measure.Flood(ctx, rig.Committers, limit, func(ctx context.Context, i int) error {
		written.Add(1)
		return write(ctx, i)
	})
	return measure.PerSecond(int(written.Load()), start), err
}

// bareWrite writes the rows of one video in one pipelined transaction.
func bareWrite(ctx context.Context, db *pgxpool.Pool) error {
	id, event, now := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7()), time.Now().UTC()
	batch := &pgx.Batch{}
	batch.Queue(insertVideo, id, now)
	batch.Queue(insertEvent, event, id.String(), rig.Payload, now)
	batch.Queue(insertInbox, event, id.String(), now)
	batch.Queue(insertProjection, id, now)
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return tx.SendBatch(ctx, batch).Close() })
}
