package inbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// Retention is how long the row of a settled event is kept unless Options say
	// otherwise: a day longer than Pub/Sub can replay anything
	// (https://cloud.google.com/pubsub/quotas: 31 days). What comes again all the
	// same is stopped by its version.
	Retention = 32 * 24 * time.Hour
	// keepEvery is the pause between two rounds of keeping.
	keepEvery = time.Minute
	// purgeBatch rows go in one transaction, purgePause apart.
	purgeBatch = 1000
	purgePause = 100 * time.Millisecond
	// deadRun is how long a run that ended badly is remembered: longer than
	// wariness, so that every neighbour has started again meanwhile.
	deadRun = 3 * keepEvery
)

// keep purges settled rows and shows that this run goes on, until ctx ends. Any
// number may: they pass over each other's rows.
func (c *Consumer) keep(ctx context.Context) {
	for backoff.Sleep(ctx, keepEvery/2+rand.N(keepEvery), nil) {
		if err := c.store.refresh(ctx); err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "this run not shown to go on", "error", err)
		}
		c.purgeAll(ctx)
	}
}

// purgeAll deletes what is settled and old, whichever consumer's it is: one that
// was renamed purges nothing any more.
func (c *Consumer) purgeAll(ctx context.Context) {
	consumers, err := c.store.consumers(ctx)
	if err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "consumers with inbox rows not found, trying again later", "error", err)
	}
	for _, consumer := range consumers {
		c.purge(ctx, consumer)
	}
}

// purge deletes the old settled rows of a consumer.
func (c *Consumer) purge(ctx context.Context, consumer string) {
	for ctx.Err() == nil {
		n, err := c.store.purge(ctx, consumer, c.retention)
		if err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "inbox rows not purged, trying again later", "error", err)
		}
		c.metrics.purged(ctx, n)
		if n < purgeBatch {
			return
		}
		backoff.Sleep(ctx, purgePause, nil)
	}
}

// consumers are all that have rows in the inbox, also under a name that none has
// any more. The index is asked for one after the other.
func (s store) consumers(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, _ := s.db.Query(ctx, `
		WITH RECURSIVE known (consumer) AS (
		  SELECT min(consumer) FROM inbox
		   UNION ALL
		  SELECT (SELECT min(consumer) FROM inbox WHERE consumer > known.consumer) FROM known WHERE consumer IS NOT NULL)
		SELECT consumer FROM known WHERE consumer IS NOT NULL`)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// purge deletes a batch of a consumer's rows that were settled, and first received
// longer ago than age. Held and dead ones wait for a person however long it takes.
func (s store) purge(ctx context.Context, consumer string, age time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	tag, err := s.db.Exec(ctx, `
		DELETE FROM inbox WHERE ctid = ANY (ARRAY(
		  SELECT ctid FROM inbox
		   WHERE consumer = $1 AND status IN ('done', 'discarded') AND received_at < now() - $2::interval
		   ORDER BY received_at LIMIT $3
		     FOR UPDATE SKIP LOCKED))`, consumer, age, purgeBatch)
	if err != nil {
		return 0, fmt.Errorf("purge: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

// refresh shows that this run goes on, and forgets those that have not for long,
// of any consumer.
func (s store) refresh(ctx context.Context) error {
	if _, err := s.enter(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	_, err := s.db.Exec(ctx, `
		DELETE FROM inbox_runs WHERE seen_at < clock_timestamp() - $1::interval`, deadRun)
	return err
}
