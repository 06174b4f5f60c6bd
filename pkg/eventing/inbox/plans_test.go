package inbox

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/txn"
)

// A handler may leave its settings of the planner behind. The consumer's own statement after
// it must not keep a plan that was made for an empty inbox: that one reads all events of the
// consumer.
func TestAHandlersPlansAreItsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.db = b.pg.Pool(t, b.pg.URL+"&pool_max_conns=1")
	c := b.consumer(t)
	apply := c.functions().apply
	c.functions().apply = func(ctx context.Context, tx pgx.Tx, changes []Change) ([]Outcome, error) {
		if _, err := tx.Exec(ctx, txn.KeepPlans); err != nil {
			return nil, err
		}
		return apply(ctx, tx, changes)
	}
	gaps := 0
	gap := func() {
		t.Helper()
		gaps++
		name := fmt.Sprint("gap", gaps)
		b.setOwner(name, 2)
		c.finish(t, delivered(event(name, 2)))
	}
	b.execAdmin(t, `VACUUM (ANALYZE) app.inbox`)
	gap()
	b.execAdmin(t, `
		INSERT INTO app.inbox (consumer, event_id, status, event_type, aggregate_type, aggregate_id, version, message_id, publish_time)
		SELECT '`+subscription+`', gen_random_uuid(), 'done', '', 'video', n, 1, '', now() FROM generate_series(1, 20000) n`)
	before := b.pagesOfInbox(t)
	const times = 5
	for range times {
		gap()
	}
	if n := (b.pagesOfInbox(t) - before) / times; n > 200 {
		t.Errorf("an event with a gap reads %d pages of the inbox, want a few", n)
	}
}

func (b *bench) pagesOfInbox(t *testing.T) int {
	t.Helper()
	pgtest.Exec(t, b.db, `SELECT pg_stat_force_next_flush()`)
	return b.count(t, `
		SELECT coalesce(heap_blks_read, 0) + coalesce(heap_blks_hit, 0) + coalesce(idx_blks_read, 0) + coalesce(idx_blks_hit, 0)
		  FROM pg_statio_user_tables WHERE relname = 'inbox'`)
}
