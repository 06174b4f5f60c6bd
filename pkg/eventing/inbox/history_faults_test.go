package inbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
)

// disturbances counts the disturbances that all histories have met: also the new epochs, the
// pages of backfills, the rows that those have moved, the pages of rebuilds, and the rows of
// shadows that a comparison had to repair.
type disturbances struct {
	locks, brownouts, repeated, epochs, pages, filled, shadowPages, shadowRepairs atomic.Int64
}

func (d *disturbances) String() string {
	return fmt.Sprintf("%d locked rows, %d brownouts, %d repeated ids, %d new epochs, %d pages that moved %d rows, "+
		"%d pages of rebuilds, and %d rows of shadows that differed at the end",
		d.locks.Load(), d.brownouts.Load(), d.repeated.Load(), d.epochs.Load(), d.pages.Load(), d.filled.Load(),
		d.shadowPages.Load(), d.shadowRepairs.Load())
}

// least is how often the rarest one was met.
func (d *disturbances) least() int64 {
	return min(d.locks.Load(), d.brownouts.Load(), d.repeated.Load(), d.epochs.Load(), d.pages.Load(), d.filled.Load(), d.shadowPages.Load())
}

// lock locks an item's row, if there is one, in another transaction until the consumer has
// blocked the item for it, or ctx ends.
func (h *history) lock(ctx context.Context, t *testing.T, c *Consumer, id string) (unlock func()) {
	t.Helper()
	h.met.locks.Add(1)
	tx, err := h.db.Begin(ctx)
	if err != nil {
		return func() {} // the consumer has died
	}
	if _, err := tx.Exec(ctx, `SELECT FROM item WHERE id = $1 FOR UPDATE`, id); err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	over, stop := context.WithCancel(ctx)
	var holding sync.WaitGroup
	holding.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for over.Err() == nil && c.blocked.counts[lockedRow].Load() == 0 {
			select {
			case <-tick.C:
			case <-over.Done():
			}
		}
		_ = tx.Rollback(context.WithoutCancel(ctx))
	})
	return func() { stop(); holding.Wait() }
}

// brownout is a database that answers, and in which the writes of one consumer run into
// time limits: those that apply events, and the smallest one.
type brownout struct {
	stalls int
	writer pgx.Tx // has the row that the smallest write needs
}

// startBrownout lets the next writes of c run into time limits, as many as stalls.
func (h *history) startBrownout(t *testing.T, c *Consumer, stalls int) *brownout {
	t.Helper()
	h.met.brownouts.Add(1)
	tx, err := h.db.Begin(t.Context())
	if err != nil {
		t.Error(err)
		return nil
	}
	if _, err := tx.Exec(t.Context(), `INSERT INTO inbox_runs (consumer, run) VALUES ($1, $2)`, c.store.consumer, c.store.instance); err != nil {
		t.Error(err)
	}
	return &brownout{stalls: stalls, writer: tx}
}

// stall has tx run into a time limit, or ends a brownout that has lasted long enough.
func (b *brownout) stall(ctx context.Context, tx pgx.Tx) error {
	if b == nil {
		return nil
	}
	b.stalls--
	if b.stalls < 0 {
		b.end()
		return nil
	}
	_, err := tx.Exec(ctx, `SET LOCAL statement_timeout = '10ms'; SELECT pg_sleep(60)`)
	return err
}

func (b *brownout) end() {
	if b != nil {
		_ = b.writer.Rollback(context.Background())
	}
}

// repeatID adds an event of another aggregate with the id of one that was delivered and
// that no purge will forget any more: the second of the two, whenever it arrives.
func (h *history) repeatID(t *testing.T) {
	t.Helper()
	rows, _ := h.db.Query(t.Context(), `SELECT event_id FROM inbox WHERE aggregate_id LIKE $1 ORDER BY event_id`, h.name+"-%")
	known, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		t.Fatal(err)
	}
	ids := append(slices.Sorted(maps.Keys(h.lives)), h.name+"-unknown")
	for _, owner := range slices.Sorted(maps.Keys(h.lives)) {
		for _, e := range h.lives[owner].all() {
			if !slices.Contains(known, e.ID) || len(h.repeats) > 0 {
				continue
			}
			ids = slices.DeleteFunc(ids, func(id string) bool { return id == e.AggregateID })
			e.AggregateID = ids[h.rnd.IntN(len(ids))]
			h.met.repeated.Add(1)
			h.repeats = append(h.repeats, e)
			h.pending = append(h.pending, e)
			h.shuffle()
		}
	}
}

func (h *history) isRepeat(e eventing.Event) bool {
	return slices.ContainsFunc(h.repeats, func(r eventing.Event) bool { return r.ID == e.ID && r.Key() == e.Key() })
}

// judgeFaults requires that each event with another's id is in the dead letters, that no
// other event is, and that no attempt is counted against any event.
func (h *history) judgeFaults(t *testing.T) {
	t.Helper()
	for _, l := range h.lives {
		for _, e := range l.all() {
			for _, dead := range h.deadLettered(e.ID.String()) {
				if found, err := eventing.ParseMessage(dead.Data, dead.Attributes); err != nil || !h.isRepeat(found) {
					t.Errorf("in the dead letters: %v, %v", dead.Attributes, err)
				}
			}
		}
	}
	for _, e := range h.repeats {
		if len(h.deadLettered(e.ID.String())) == 0 {
			t.Errorf("version %d of %s has another event's id and is not in the dead letters", e.Version, e.Key())
		}
	}
	rows, _ := h.db.Query(t.Context(), `SELECT row_to_json(i)::text FROM inbox i WHERE attempts > 0 AND aggregate_id LIKE $1`, h.name+"-%")
	counted, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(counted) > 0 {
		t.Errorf("attempts are counted against events: %v, %v", counted, err)
	}
}
