package inbox

import (
	"context"
	"slices"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
)

func TestPurgeDeletesOldSettledRows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	_, err := b.db.Exec(t.Context(), `
		INSERT INTO inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time, status, received_at)
		SELECT c, gen_random_uuid(), 'VideoUpdated', 'video', s || age, 1, 'm', now(), s, now() - age
		  FROM unnest(ARRAY['done', 'held', 'dead', 'discarded']) AS s, unnest(ARRAY['31 days'::interval, '33 days']) AS age,
		       unnest(ARRAY[$1, 'another consumer']) AS c, generate_series(1, 600)`, subscription)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := purged(t, c, Retention); err != nil || n != purgeBatch {
		t.Errorf("purged %d rows (%v), want %d", n, err, purgeBatch)
	}
	c.purgeAll(t.Context()) // also the rows of a consumer that has another name now
	if n := b.count(t, `SELECT count(*) FROM inbox WHERE status IN ('done', 'discarded') AND received_at < now() - interval '32 days'`); n != 0 {
		t.Errorf("%d rows that should have gone", n)
	}
	if left := b.count(t, `SELECT count(*) FROM inbox`); left != 16*600-4*600 {
		t.Errorf("%d rows are left", left)
	}
	c.options.Retention = 30 * 24 * time.Hour
	c.purgeAll(t.Context())
	if left := b.count(t, `SELECT count(*) FROM inbox`); left != 16*600-8*600 {
		t.Errorf("%d rows are left by a shorter retention", left)
	}
}

// purged deletes one batch, as the first of a purge.
func purged(t *testing.T, c *Consumer, age time.Duration) (int64, error) {
	t.Helper()
	n, _, err := c.store.purge(t.Context(), subscription, age, time.Time{})
	return n, err
}

// A transaction keeps vacuum away, as a dump does for hours. The rows that a purge has deleted stay in the index then,
// and its next batch does not read them again.
func TestAPurgePassesNoRowThatItHasDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.db = b.pg.Pool(t, b.pg.URL+"&pool_max_conns=1") // the pages are counted by this session
	c := b.consumer(t)
	const batches = 20
	_, err := b.db.Exec(t.Context(), `
		INSERT INTO inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time, status, received_at)
		SELECT $1, gen_random_uuid(), 'VideoUpdated', 'video', s::text, 1, 'm', now(), 'done', now() - interval '34 days' + s * interval '1 second'
		  FROM generate_series(1, $2::int) AS s ORDER BY md5(s::text)`, subscription, batches*purgeBatch)
	if err != nil {
		t.Fatal(err)
	}
	dump, err := b.pg.Pool(t, b.pg.Admin).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dump.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, dump, `SELECT count(*) FROM app.inbox`)
	before := b.pagesOfInbox(t)
	c.purge(t.Context(), subscription)
	if pages := (b.pagesOfInbox(t) - before) / batches; pages > 7*purgeBatch {
		t.Errorf("a batch of %d rows accesses %d pages", purgeBatch, pages)
	}
	if n := b.count(t, `SELECT count(*) FROM inbox`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// A purge of many rows lasts longer than the record of an instance without a heartbeat.
func TestALongPurgeShowsThatTheInstanceRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	c.register(t.Context())
	_, err := b.db.Exec(t.Context(), `
		INSERT INTO inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time, status, received_at)
		SELECT $1, gen_random_uuid(), 'VideoUpdated', 'video', s::text, 1, 'm', now(), 'done', now() - interval '33 days'
		  FROM generate_series(1, $2 + 1) AS s`, subscription, purgeBatch)
	if err != nil {
		t.Fatal(err)
	}
	b.execAdmin(t, `UPDATE app.inbox_runs SET seen_at = now() - interval '1 day'`)
	c.purgeAll(t.Context())
	if n := b.count(t, `SELECT count(*) FROM inbox_runs WHERE seen_at > now() - interval '1 minute'`); n != 1 {
		t.Error("the record is from before the purge")
	}
}

// The version stops an event that comes again after the purge of its row.
func TestVersionStopsAnEventAfterThePurge(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	one, two := event("a", 1), event("a", 2)
	c.finish(t, delivered(one), delivered(two))
	if n, err := purged(t, c, -time.Hour); err != nil || n != 2 {
		t.Fatalf("purged %d, %v", n, err)
	}
	c.finish(t, delivered(two))
	c.finish(t, delivered(one))
	if v, n := b.count(t, version, "a"), b.count(t, effects, "a"); v != 2 || n != 2 {
		t.Errorf("version %d after %d effects", v, n)
	}
}

func TestInboxRowSaysWhenAndFromWhere(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	e := event("a", 1)
	c.finish(t, delivered(e))
	row := `SELECT count(*) FROM inbox WHERE source = 'stream' AND status = 'done' AND last_error IS NULL AND `
	if b.count(t, row+`last_seen_at = received_at`) != 1 {
		t.Error("want it seen once")
	}
	c.finish(t, delivered(e))
	if b.count(t, row+`last_seen_at > received_at`) != 1 {
		t.Error("want it seen twice")
	}
}

// A run that ended badly is remembered until all instances have started again.
func TestInstancesAreRemembered(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first, second, third := b.consumer(t), b.consumer(t), b.consumer(t)
	first.register(t.Context())
	if !first.uncleanStartUntil.IsZero() {
		t.Error("the first instance takes its start for an unclean one")
	}
	second.register(t.Context())
	if second.uncleanStartUntil.IsZero() {
		t.Error("the second instance takes its start for a clean one, although the first may have died")
	}
	if !second.mayCrashLoop(delivered(event("a", 1))) || first.mayCrashLoop(delivered(event("a", 1))) {
		t.Error("the start of one is unclean, and only that one must record starts")
	}
	counted := delivered(event("a", 1))
	counted.messages = append(counted.messages, &pubsub.Message{DeliveryAttempt: new(1)})
	if second.mayCrashLoop(counted) {
		t.Error("the start of a first delivery is recorded")
	}
	second.shutDown(t.Context(), nil)
	pgtest.Exec(t, b.db, `UPDATE inbox_runs SET seen_at = now() - interval '1 day'`)
	_, err := b.db.Exec(t.Context(), `INSERT INTO inbox_runs VALUES ('renamed since', gen_random_uuid(), now() - interval '1 day')`)
	if err != nil {
		t.Fatal(err)
	}
	if err := third.store.heartbeat(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, `SELECT count(*) FROM inbox_runs`); n != 1 {
		t.Errorf("%d runs are remembered, want the third", n)
	}
}

func TestRoute(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	var ballads []string
	ballad := &functions{
		decode:    func(eventing.Event) (Change, error) { return Change{}, nil },
		committed: func(keys ...string) { ballads = append(ballads, keys...) },
		repair:    b.repair,
		apply:     c.handler.Apply,
	}
	c.handler = guarded{Route{"video": c.handler.Handler, "ballad": ballad}}
	s, s2, v, odd := event("s", 1), event("s2", 1), event("v", 1), event("o", 1)
	s.AggregateType, s2.AggregateType, odd.AggregateType = "ballad", "ballad", "poem"
	var all []*delivery
	for _, e := range []eventing.Event{v, odd, s, s2} {
		m := e.Message()
		all = append(all, c.handler.newDelivery(&pubsub.Message{ID: e.AggregateID, Data: m.Data, Attributes: m.Attributes}))
	}
	c.finish(t, all...)
	if n := b.count(t, withDone); n != 3 || len(b.deadLettered(odd.ID.String())) != 1 {
		t.Errorf("%d done; dead letters %v", n, b.deadLettered(""))
	}
	slices.Sort(ballads)
	if !slices.Equal(ballads, []string{"ballad/s", "ballad/s2"}) {
		t.Errorf("the handler of ballads heard of %v", ballads)
	}
	c.handler.Committed(t.Context(), consistency.PositionOf(odd)) // as after the redrive of a dead letter
}
