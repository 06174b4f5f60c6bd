package inbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/txn"
)

const (
	// maxStarts is how many times an event may be started without a recorded end. After that the
	// event counts as the cause of the process's end.
	maxStarts = 3
	// uncleanStartTime is how long the consumer records the starts of events after an unclean start. By then
	// the leases of the former process have ended, and its messages were delivered again.
	uncleanStartTime = 2 * time.Minute
)

// register records that this consumer runs. A clean end removes the record. If the record of
// another instance is left, that instance may have crashed, and one of the next deliveries may be
// the cause.
func (c *Consumer) register(ctx context.Context) {
	_ = c.persist(ctx, "register", func() error {
		others, err := c.store.register(ctx)
		if err == nil && others {
			c.uncleanStartUntil = time.Now().Add(uncleanStartTime)
		}
		return err
	})
}

// markStarted records the first start of the events in batch that may be in a crash loop, and
// marks events that were started before. It returns an error only if ctx has ended.
func (c *Consumer) markStarted(ctx context.Context, batch []*delivery) error {
	var suspects []*delivery
	for _, d := range batch {
		if d.starts == 0 && d.invalid == nil && !d.finished && c.mayCrashLoop(d) {
			suspects = append(suspects, d)
		}
	}
	if len(suspects) == 0 {
		return ctx.Err()
	}
	return c.markAllStarted(ctx, suspects, c.lockWait(suspects))
}

// markAllStarted is markStarted for suspects. If another session has locked the inbox row of an
// event, the start of that event is not recorded, and the starts of the other events are. The
// transaction that applies the event then meets the same lock, and the event is put off.
func (c *Consumer) markAllStarted(ctx context.Context, suspects []*delivery, wait time.Duration) error {
	locked := false
	err := c.persist(ctx, "start", func() error {
		first, before, err := c.store.markStarted(ctx, suspects, wait)
		if locked = txn.IsLockTimeout(err); locked {
			return nil
		}
		if err != nil {
			return err
		}
		for _, d := range suspects {
			if first[d] {
				d.starts = 1
			}
			d.startedBefore = before[d]
		}
		return nil
	})
	if err != nil || !locked || len(suspects) == 1 {
		return err
	}
	half, wait := len(suspects)/2, min(wait, shareOfWait(len(suspects)))
	if err := c.markAllStarted(ctx, suspects[:half], wait); err != nil {
		return err
	}
	return c.markAllStarted(ctx, suspects[half:], wait)
}

// markStartedAgain records another start of d if d was started before. The caller then applies d
// alone. After maxStarts starts, d belongs in the dead letters. If another session has locked the
// inbox row of d, the start is not recorded, as in markAllStarted. markStartedAgain returns an error
// only if ctx has ended.
func (c *Consumer) markStartedAgain(ctx context.Context, d *delivery) error {
	if !d.startedBefore || d.starts > 0 || d.invalid != nil {
		return ctx.Err()
	}
	return c.persist(ctx, "start", func() (err error) {
		if d.starts, err = c.store.markStartedAgain(ctx, d, c.lockWait([]*delivery{d})); d.starts > maxStarts {
			d.invalid = fmt.Errorf("the process ended %d times while applying it", d.starts-1)
		}
		if txn.IsLockTimeout(err) {
			return nil
		}
		return err
	})
}

// mayCrashLoop reports whether d may have ended a process. If the broker counts deliveries, it returns true
// for an event that was delivered before. Otherwise it returns true for every event until
// uncleanStartUntil.
func (c *Consumer) mayCrashLoop(d *delivery) bool {
	if n := d.attempt(); n > 0 {
		return n > 1
	}
	return time.Now().Before(c.uncleanStartUntil)
}

// markStarted records, in a commit of its own, that batch is about to be applied. first has the
// events without an earlier recorded start. before has the events that have such a start and are
// not done. The rows of these events stay as they are. wait bounds the wait for each lock
// (txn.IsLockTimeout). If one of the rows stays locked, no start is recorded.
func (s store) markStarted(
	ctx context.Context, batch []*delivery, wait time.Duration,
) (first, before map[*delivery]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	b := waiting(wait)
	b.Queue(`
		INSERT INTO inbox AS i (`+rowColumns+`, status, begun)
		SELECT DISTINCT ON (e.event_id) $1, e.*, 'held', 1 FROM `+rowsOf+` ORDER BY e.event_id
		ON CONFLICT (consumer, event_id) DO UPDATE SET begun = 1, last_seen_at = clock_timestamp()
		 WHERE i.status <> 'done' AND i.begun = 0 AND `+sameAs("excluded")+`
		RETURNING event_id, aggregate_type, aggregate_id, version`, s.rows(batch)...).
		Query(func(rows pgx.Rows) (err error) {
			first, err = matching(rows, batch)
			return err
		})
	if err := s.db.SendBatch(ctx, b).Close(); err != nil {
		return nil, nil, fmt.Errorf("start: %w", err)
	}
	if len(first) == len(batch) {
		return first, nil, nil
	}
	rows, _ := s.db.Query(ctx, `
		SELECT event_id, aggregate_type, aggregate_id, version
		  FROM inbox WHERE consumer = $1 AND event_id = ANY ($2) AND status <> 'done'`, s.consumer, ids(batch))
	if before, err = matching(rows, batch); err != nil {
		return nil, nil, fmt.Errorf("start: %w", err)
	}
	maps.DeleteFunc(before, func(d *delivery, _ bool) bool { return first[d] })
	return first, before, nil
}

// markStartedAgain counts, in a commit of its own, that d is about to be applied, and
// returns the count. wait bounds the wait for the row's lock (txn.IsLockTimeout).
func (s store) markStartedAgain(ctx context.Context, d *delivery, wait time.Duration) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	b := waiting(wait)
	b.Queue(`
		UPDATE inbox i SET begun = begun + 1, last_seen_at = clock_timestamp() `+joinedRows+`
		RETURNING begun`, s.rows([]*delivery{d})...).
		QueryRow(func(row pgx.Row) error {
			err := row.Scan(&n)
			if errors.Is(err, pgx.ErrNoRows) { // the row was purged meanwhile, so the event was done
				return nil
			}
			return err
		})
	if err := s.db.SendBatch(ctx, b).Close(); err != nil {
		return 0, fmt.Errorf("start again: %w", err)
	}
	return n, nil
}

// unmarkStarted takes back one recorded start of each event in batch, because the event has not
// ended the process. It returns how many starts it has taken back. It does not wait for a row that
// another session has locked.
func (s store) unmarkStarted(ctx context.Context, batch []*delivery) (rows int64, err error) {
	return s.within(probeTimeout).Statement("take starts back", `
		WITH free AS (SELECT i.event_id FROM inbox i, `+eachRow+` FOR UPDATE OF i SKIP LOCKED)
		UPDATE inbox i SET begun = greatest(begun - 1, 0) FROM free
		 WHERE i.consumer = $1 AND i.event_id = free.event_id`, s.rows(batch)...).Exec(ctx)
}

// waiting returns a batch whose statements wait for each lock no longer than limit. The statements
// are one transaction.
func waiting(limit time.Duration) *pgx.Batch {
	b := &pgx.Batch{}
	b.Queue(`SELECT set_config('lock_timeout', $1, true)`, strconv.FormatInt(limit.Milliseconds(), 10))
	return b
}

// register records that this instance has started. others is true if another instance of the consumer has a
// row: it runs, or it has ended without deregister.
func (s store) register(ctx context.Context) (others bool, err error) {
	err = s.within(queryTimeout).Statement("register", `
		WITH own AS (
		  INSERT INTO inbox_runs (consumer, run) VALUES ($1, $2)
		  ON CONFLICT (consumer, run) DO UPDATE SET seen_at = clock_timestamp())
		SELECT EXISTS (SELECT FROM inbox_runs WHERE consumer = $1 AND run <> $2)`, s.consumer, s.instance).Scan(ctx, &others)
	return others, err
}

// deregister deletes this instance's row. A missing row shows that the instance has ended in order.
func (s store) deregister(ctx context.Context) error {
	_, err := s.within(probeTimeout).Statement("deregister",
		`DELETE FROM inbox_runs WHERE consumer = $1 AND run = $2`, s.consumer, s.instance).Exec(ctx)
	return err
}
