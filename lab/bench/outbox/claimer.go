package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// claimed is the number of events that a timed claim finds. Each event is of another aggregate.
const claimed = 100

// scanned is the number of rows in a page of a scan.
const scanned = 2000

// claimLimits are the limits of a relay's claim.
var claimLimits = queue.Claim{Aggregates: 500, Events: 2000, PerAggregate: 100, Bytes: 8 << 20}

// claimOnce appends events, claims them, and marks them as published. Then it scans a page. It
// returns the durations of the claim and of the scan.
func claimOnce(ctx context.Context, d *rig.Database) (claim, page time.Duration, err error) {
	db, err := d.Pool(ctx, 1)
	if err != nil {
		return 0, 0, err
	}
	defer db.Close()
	c := claimer{queue: queue.New(db), claimed: claimLimits}
	c.claimed.Token = uuid.NewString()
	if err := db.QueryRow(ctx, `SELECT pg_current_snapshot()::text`).Scan(&c.seen); err != nil {
		return 0, 0, err
	}
	// The first round only makes the connection prepare its statements.
	for range 2 {
		if err := appendNew(ctx, db, claimed); err != nil {
			return 0, 0, err
		}
		if claim, err = c.claim(ctx); err != nil {
			return 0, 0, err
		}
	}
	page, err = c.page(ctx)
	return claim, page, err
}

// claimer claims events like a relay.
type claimer struct {
	queue   queue.Queue
	claimed queue.Claim
	seen    queue.TxSnapshot
}

// claim claims the appended events, and returns the duration of the claim.
func (c *claimer) claim(ctx context.Context) (took time.Duration, err error) {
	start := time.Now()
	found, err := c.queue.ClaimNew(ctx, c.claimed, c.seen, nil)
	took = time.Since(start)
	if err == nil && len(found.Batches) != claimed {
		err = fmt.Errorf("%d events claimed, want %d", len(found.Batches), claimed)
	}
	if err != nil {
		return 0, err
	}
	c.seen = found.Seen
	return took, c.settle(ctx, found.Batches, true)
}

// page scans the first rows of the table, and returns the duration of the scan.
func (c *claimer) page(ctx context.Context) (took time.Duration, err error) {
	start := time.Now()
	found, err := c.queue.Scan(ctx, c.claimed, queue.Beginning.Since()[0], scanned)
	took = time.Since(start)
	if err != nil {
		return 0, err
	}
	return took, c.settle(ctx, found.Batches, false)
}

// settle marks all claimed events as published if published is true. If not, it releases them.
func (c *claimer) settle(ctx context.Context, batches []queue.Batch, published bool) error {
	var settlements []queue.Settlement
	for _, batch := range batches {
		settlement := queue.Settlement{Batch: batch}
		if published {
			settlement.Published = len(batch)
		}
		settlements = append(settlements, settlement)
	}
	_, err := c.queue.Settle(ctx, c.claimed.Token, settlements)
	return err
}

// appendNew commits one event for each of n new aggregates.
func appendNew(ctx context.Context, db *pgxpool.Pool, n int) error {
	events := make([]eventing.Event, n)
	for i := range events {
		events[i] = rig.VideoCreated(uuid.Must(uuid.NewV7()), time.Now().UTC())
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return outbox.Append(ctx, tx, nil, events...) })
}
