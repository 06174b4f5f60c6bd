package outbox

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// The plain loop's statements.
const (
	plainClaim = `
		WITH cte AS (
		  SELECT id FROM app_outbox
		   WHERE published_at IS NULL
		     AND (next_retry_at IS NULL OR next_retry_at <= now())
		   ORDER BY occurred_at
		   LIMIT 200
		   FOR UPDATE SKIP LOCKED
		)
		UPDATE app_outbox o
		   SET lock_token = $1, locked_at = now()
		  FROM cte
		 WHERE o.id = cte.id
		RETURNING ` + columns
	plainMark = `
		UPDATE app_outbox
		   SET published_at = now(), lock_token = NULL, locked_at = NULL
		 WHERE id = $1 AND lock_token = $2`
)

// plainLoop claims 200 rows. Then, for one row after the other, it publishes the row, waits for the
// answer and marks the row. It runs until limit is over, and returns events per second. Each
// request is sent at once. A Publisher would delay each request by 10 ms to wait for more messages.
func plainLoop(ctx context.Context, db *pgxpool.Pool, probe *rig.BrokerProbe, limit time.Duration) (float64, error) {
	token := uuid.NewString()
	done := 0
	start := time.Now()
	for time.Since(start) < limit {
		rows, err := claimRows(ctx, db, plainClaim, token)
		if err != nil {
			return 0, err
		}
		if len(rows) == 0 {
			break
		}
		for _, r := range rows {
			if err := rig.Publish(ctx, probe.Client, r.message()); err != nil {
				return 0, err
			}
			if _, err := db.Exec(ctx, plainMark, r.ID, token); err != nil {
				return 0, err
			}
			done++
			if time.Since(start) >= limit {
				break
			}
		}
	}
	return measure.PerSecond(done, start), nil
}

func claimRows(ctx context.Context, db *pgxpool.Pool, claim string, args ...any) ([]row, error) {
	rows, err := db.Query(ctx, claim, args...)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[row])
}

// bareBatch is the largest number of events in a relay's claim.
const bareBatch = 2000

// These are the simplest statements that claim a batch and mark a batch. One index finds the rows
// of a claim.
const (
	bareClaim = `
		UPDATE bare_outbox o
		   SET lock_token = $1, locked_at = now()
		 WHERE o.id = ANY(ARRAY(
		       SELECT id FROM bare_outbox
		        WHERE published_at IS NULL AND lock_token IS NULL
		        ORDER BY occurred_at LIMIT $2 FOR UPDATE SKIP LOCKED))
		RETURNING ` + columns
	bareMark = `
		UPDATE bare_outbox
		   SET published_at = now(), lock_token = NULL, locked_at = NULL
		 WHERE id = ANY($1) AND lock_token = $2`
)

// bareStatements claims and marks n events, and publishes nothing.
func bareStatements(ctx context.Context, db *pgxpool.Pool, n int) (float64, error) {
	token := uuid.NewString()
	start := time.Now()
	for done := 0; done < n; {
		rows, err := claimRows(ctx, db, bareClaim, token, bareBatch)
		if err != nil {
			return 0, err
		}
		ids := make([]uuid.UUID, len(rows))
		for i, r := range rows {
			ids[i] = r.ID
		}
		if _, err := db.Exec(ctx, bareMark, ids, token); err != nil {
			return 0, err
		}
		if done += len(rows); len(rows) == 0 {
			return 0, fmt.Errorf("%d of %d events found", done, n)
		}
	}
	return measure.PerSecond(n, start), nil
}

const (
	// bareRequests is the largest number of concurrent requests of a relay.
	bareRequests = 128
	// barePerRequest is the largest number of events in one request of a relay. All of them are of one
	// aggregate.
	barePerRequest = 100
)

// bareClient publishes the backlog from memory. For each aggregate it sends one request after the
// other. It handles all aggregates concurrently.
func bareClient(ctx context.Context, probe *rig.BrokerProbe, b backlog) (float64, error) {
	now := time.Now().UTC()
	requests, ctx := errgroup.WithContext(ctx)
	requests.SetLimit(bareRequests)
	start := time.Now()
	for a := range b.aggregates {
		requests.Go(func() error {
			messages := make([]*pubsubpb.PubsubMessage, 0, min(b.versions, barePerRequest))
			for v := 1; v <= b.versions; v++ {
				r := row{
					ID: uuid.UUID{byte(a), byte(a >> 8), byte(v)}, AggregateID: b.key(a), EventType: "VideoUpdated",
					Version: int64(v), SchemaVersion: 1, Payload: rig.Payload, OccurredAt: now,
				}
				messages = append(messages, r.message())
				if len(messages) == barePerRequest || v == b.versions {
					if err := rig.Publish(ctx, probe.Client, messages...); err != nil {
						return err
					}
					messages = messages[:0]
				}
			}
			return nil
		})
	}
	err := requests.Wait()
	return measure.PerSecond(b.events(), start), err
}
