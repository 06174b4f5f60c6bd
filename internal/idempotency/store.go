package idempotency

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing"
)

// insert takes the place of an expired key. While another transaction holds the key
// it waits; when that commits, or a live key was there before, nothing is inserted.
func (r Request) insert(b *pgx.Batch, response []byte) {
	b.Queue(`
		INSERT INTO idempotency_keys AS k (principal, operation, key, request_hash, response)
		VALUES ('', $1, $2, $3, $4)
		ON CONFLICT (principal, operation, key) DO UPDATE
		   SET request_hash = excluded.request_hash, response = excluded.response, created_at = excluded.created_at
		 WHERE k.created_at <= now() - interval '24 hours'`,
		r.operation, r.key, r.hash, response).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() == 0 {
			return ErrAnswered
		}
		return nil
	})
}

func (r Request) selectInto(b *pgx.Batch, found func(Stored)) {
	b.Queue(`
		SELECT request_hash AS hash, response
		  FROM idempotency_keys
		 WHERE principal = '' AND operation = $1 AND key = $2 AND created_at > now() - interval '24 hours'`,
		r.operation, r.key).Query(func(rows pgx.Rows) error {
		stored, err := pgx.CollectRows(rows, pgx.RowToStructByName[Stored])
		for _, s := range stored {
			found(s)
		}
		return err
	})
}

// A sweep removes up to 20 × 500 keys, each batch in milliseconds, so that row locks
// are short. An expired key that is still there does no harm: it is replaced when it
// comes again.
const (
	sweepBatches = 20
	sweepBatch   = 500
	sweepTimeout = 10 * time.Second
)

// Sweep removes expired keys, about once a minute until ctx ends, then returns nil.
// Any number may run on one database; what fails is left to the next pass. beat is
// called at each pass.
func Sweep(ctx context.Context, db *pgxpool.Pool, log *slog.Logger, beat func()) error {
	jitter := eventing.Backoff{Base: time.Minute, Cap: time.Minute}
	for {
		beat()
		if err := sweep(ctx, db); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "expired idempotency keys not removed", "error", err)
		}
		if !eventing.Sleep(ctx, 30*time.Second+jitter.Delay(1), nil) {
			return nil
		}
	}
}

func sweep(ctx context.Context, db *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	for range sweepBatches {
		// The oldest first; those that another instance is removing are skipped.
		tag, err := db.Exec(ctx, `
			DELETE FROM idempotency_keys
			 WHERE (principal, operation, key) IN (
			       SELECT principal, operation, key
			         FROM idempotency_keys
			        WHERE created_at <= now() - interval '24 hours'
			        ORDER BY created_at
			        LIMIT $1
			          FOR UPDATE SKIP LOCKED)`, sweepBatch)
		if err != nil || tag.RowsAffected() < sweepBatch {
			return err
		}
	}
	return nil
}
