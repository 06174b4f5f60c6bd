package inbox

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/bounded"
)

const (
	// Retention is how long the row of a finished event is kept unless Options say otherwise.
	// Pub/Sub can replay the messages of up to 31 days (https://cloud.google.com/pubsub/quotas), so
	// Retention is a day longer. An event that comes even later is stale by its version.
	Retention = 32 * 24 * time.Hour
	// maintainEvery is the pause between two rounds of maintenance.
	maintainEvery = time.Minute
	// purgeBatch is how many rows are deleted in one transaction. purgePause is the pause between
	// two such transactions.
	purgeBatch = 1000
	purgePause = 100 * time.Millisecond
	// forgetInstanceAfter is how long the record of an instance without a clean end is kept. It is longer
	// than uncleanStartTime, so that every neighbour has started again before the record is deleted.
	forgetInstanceAfter = 3 * maintainEvery
)

// maintain purges finished rows and writes this instance's heartbeat, until ctx ends. Any number
// of instances may do so at once, because they skip each other's rows.
func (c *Consumer) maintain(ctx context.Context) {
	for backoff.Sleep(ctx, maintainEvery/2+rand.N(maintainEvery), nil) {
		c.showRun(ctx)
		if err := c.options.Checkpoints.Forget(ctx); err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "offsets of former instances not deleted, trying again later", "error", err)
		}
		c.purgeAll(ctx)
	}
}

// showRun writes this instance's heartbeat.
func (c *Consumer) showRun(ctx context.Context) {
	if err := c.store.heartbeat(ctx); err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "this run not shown to go on", "error", err)
	}
}

// purgeAll deletes old finished rows of every consumer, because a consumer that was renamed no
// longer purges the rows of its old name.
func (c *Consumer) purgeAll(ctx context.Context) {
	consumers, err := c.store.consumers(ctx)
	if err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "consumers with inbox rows not found, trying again later", "error", err)
	}
	for _, consumer := range consumers {
		c.purge(ctx, consumer)
	}
}

// purge deletes the old finished rows of a consumer. It also writes heartbeats, because a purge may
// last longer than forgetInstanceAfter.
func (c *Consumer) purge(ctx context.Context, consumer string) {
	from := time.Time{}
	for ctx.Err() == nil {
		n, last, err := c.store.purge(ctx, consumer, c.options.Retention, from)
		if err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "inbox rows not purged, trying again later", "error", err)
		}
		c.metrics.purged(ctx, n)
		if n < purgeBatch {
			return
		}
		from = *last // skips the dead index entries before last, which take time to pass
		c.showRun(ctx)
		backoff.Sleep(ctx, purgePause, nil)
	}
}

// consumers returns all consumer names in the inbox, even the former names of renamed consumers.
// The query reads one name after the other from the index.
func (s store) consumers(ctx context.Context) ([]string, error) {
	return bounded.Collect(ctx, s.within(queryTimeout).Statement("find consumers", `
		WITH RECURSIVE known (consumer) AS (
		  SELECT min(consumer) FROM inbox
		   UNION ALL
		  SELECT (SELECT min(consumer) FROM inbox WHERE consumer > known.consumer) FROM known WHERE consumer IS NOT NULL)
		SELECT consumer FROM known WHERE consumer IS NOT NULL`), pgx.RowTo[string])
}

// purge deletes a batch of a consumer's rows that are finished, and were first received at from or later, and
// longer ago than age. It returns their number, and the latest time among them. Rows that are held or dead are
// never purged, however long they wait for an operator.
func (s store) purge(ctx context.Context, consumer string, age time.Duration, from time.Time) (rows int64, last *time.Time, err error) {
	err = s.within(queryTimeout).Statement("purge", `
		WITH gone AS (
		  DELETE FROM inbox WHERE ctid = ANY (ARRAY(
		    SELECT ctid FROM inbox
		     WHERE consumer = $1 AND status IN ('done', 'discarded') AND received_at >= $4 AND received_at < now() - $2::interval
		     ORDER BY received_at LIMIT $3
		       FOR UPDATE SKIP LOCKED))
		  RETURNING received_at)
		SELECT count(*), max(received_at) FROM gone`, consumer, age, purgeBatch, from).Scan(ctx, &rows, &last)
	return rows, last, err
}

// heartbeat writes that this instance is running. It also deletes the record of every instance, of
// any consumer, that has not written a heartbeat for forgetInstanceAfter.
func (s store) heartbeat(ctx context.Context) error {
	if _, err := s.register(ctx); err != nil {
		return err
	}
	_, err := s.within(queryTimeout).Statement("forget instances", `
		DELETE FROM inbox_runs WHERE seen_at < clock_timestamp() - $1::interval`, forgetInstanceAfter).Exec(ctx)
	return err
}
