package outbox

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/migrations"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/tenant"
)

// transaction is the work in one transaction and after it.
type transaction struct {
	name, note string
	do         func(ctx context.Context, db *pgxpool.Pool) error
	wake       bool // wakes the relay after each commit
}

const insertVideo = `
	INSERT INTO videos (video_id, uploader_id, title, description, duration_seconds, version, created_at, updated_at)
	VALUES ($1, $2, $3, $4, $5, 1, $6, $6)`

// videoRow returns the arguments of insertVideo.
func videoRow(id uuid.UUID, at time.Time) []any {
	return []any{id, id, "A title as people give", "A description of some length, as people write them.", 60, at}
}

// insertKey inserts the idempotency key of a request, and the answer to the request.
const insertKey = `
	INSERT INTO idempotency_keys (principal, operation, key, request_hash, response) VALUES ('', 'POST /v1/videos', $1, $2, $3)`

var (
	requestHash = make([]byte, 32)
	response    = make([]byte, 300)
)

// queueBusiness returns a batch with the statements of a request, except the statement for the
// event. The statements are those of services/video.
func queueBusiness(id uuid.UUID, at time.Time) *pgx.Batch {
	batch := &pgx.Batch{}
	addBusiness(batch, id, at)
	return batch
}

func addBusiness(batch *pgx.Batch, id uuid.UUID, at time.Time) {
	batch.Queue(insertKey, id.String(), requestHash, response)
	batch.Queue(insertVideo, videoRow(id, at)...)
}

// writeBusiness writes only the video and the idempotency key of the request.
func writeBusiness(ctx context.Context, db *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		return tx.SendBatch(ctx, queueBusiness(uuid.Must(uuid.NewV7()), time.Now().UTC())).Close()
	})
}

// writeOutbox writes the video and its event as services/video does.
func writeOutbox(ctx context.Context, db *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		id, now := uuid.Must(uuid.NewV7()), time.Now().UTC()
		batch := queueBusiness(id, now)
		return outbox.Append(ctx, tx, batch, rig.VideoCreated(id, now))
	})
}

// writeLimited is like writeOutbox, but limits the wait for locks. Each write of services/video has
// this limit.
func writeLimited(ctx context.Context, db *pgxpool.Pool) error { return writeIn(ctx, db, tenant.All()) }

// writeInTenant is like writeLimited, but uses the role of requests and the name of a tenant.
func writeInTenant(ctx context.Context, db *pgxpool.Pool) error {
	return writeIn(ctx, db, tenant.One(migrations.Video.RequestRole(), eventing.DefaultTenant))
}

func writeIn(ctx context.Context, db *pgxpool.Pool, scope tenant.Scope) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		id, now := uuid.Must(uuid.NewV7()), time.Now().UTC()
		batch := &pgx.Batch{}
		scope.EnterLimited(batch, time.Second)
		addBusiness(batch, id, now)
		return outbox.Append(ctx, tx, batch, rig.VideoCreated(id, now))
	})
}

// writePipelined sends the statements of writeOutbox as one hand-written pipeline.
func writePipelined(ctx context.Context, db *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		id, now := uuid.Must(uuid.NewV7()), time.Now().UTC()
		batch := queueBusiness(id, now)
		batch.Queue(`
			INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at)
			VALUES ($1, 'video', $2, 'VideoCreated', 1, $3, $4)`, uuid.Must(uuid.NewV7()), id.String(), rig.Payload, now)
		return tx.SendBatch(ctx, batch).Close()
	})
}

// writeNotify is the variant of the plain loop. Its last statement is NOTIFY.
func writeNotify(ctx context.Context, db *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		id, now := uuid.Must(uuid.NewV7()), time.Now().UTC()
		batch := queueBusiness(id, now)
		batch.Queue(`
			INSERT INTO app_outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
			VALUES ($1, 'video', $2, 'VideoCreated', 1, $3)`, uuid.Must(uuid.NewV7()), id.String(), rig.Payload)
		batch.Queue(`NOTIFY outbox_wake`)
		return tx.SendBatch(ctx, batch).Close()
	})
}

var (
	business  = transaction{"business", "the video's row and the idempotency key's, in a batch", writeBusiness, false}
	pipelined = transaction{"pipelined", "the same and the event's row, three statements in a batch", writePipelined, false}
	appended  = transaction{"outbox", "the same by Append, and Wake after the commit", writeOutbox, true}
	noWake    = transaction{"outbox_no_wake", "the same without Wake", writeOutbox, false}
	limited   = transaction{"limited", "the same with the limit on waits for locks", writeLimited, true}
	inTenant  = transaction{"in_tenant", "the same as the role of requests, in the name of a tenant", writeInTenant, true}
	notifying = transaction{"notify", "the same with the plain loop's tables, and a NOTIFY in the transaction", writeNotify, false}
)
