package outbox

import (
	"context"
	"fmt"
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// TestRetentionDeletesWhatIsOld is the timer's part of it.
func TestRetentionDeletesWhatIsOld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "old", 1, 3)
	b.exec(t, `UPDATE outbox SET published_at = now() - interval '2 hours' WHERE version < 3`)
	r := b.newRelay(t)
	r.options.Retention = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	b.eventually(t, 0, `SELECT count(*) FROM outbox WHERE version = 1`)
	b.eventually(t, 0, unpublished)
	cancel()
	<-ended
}

// oldRows are 6,000 published ones, in more pages than two statements purge.
func (b *bench) oldRows(t *testing.T) {
	t.Helper()
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, published_at)
		SELECT gen_random_uuid(), 'video', 'a', 'VideoUpdated', v, decode(repeat('ab', 500), 'hex'), now() - interval '2 hours'
		  FROM generate_series(1, 6000) v`)
	if n := b.count(t, `SELECT pg_relation_size('outbox') / current_setting('block_size')::int`); n < 3*queue.PurgePages {
		t.Fatalf("%d pages are too few for a test", n)
	}
}

// A purge does not read the pages that another relay has purged.
func TestAPurgeRangeBeginsWhereTheLastOneEnded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.oldRows(t)
	behind := fmt.Sprintf("'(%d,0)'", 2*queue.PurgePages)
	before := b.count(t, `SELECT count(*) FROM outbox WHERE ctid < `+behind)
	b.exec(t, `UPDATE outbox_retention SET next_page = $1`, 2*queue.PurgePages)
	r := b.newRelay(t)
	r.options.Retention = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	b.eventually(t, 0, `SELECT count(*) FROM outbox WHERE version < 6000 AND ctid > `+behind)
	cancel()
	<-ended
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE ctid < `+behind); n != before {
		t.Errorf("%d rows are left in the pages before, of %d", n, before)
	}
}

// TestAnErrorCostsRetentionNothingOfThePass has a statement fail in the midst of a
// pass over more pages than two statements purge.
func TestAnErrorCostsRetentionNothingOfThePass(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	b := newBenchOn(t, pg)
	b.oldRows(t)
	pgtest.Exec(t, pg.Pool(t, pg.Admin), `
		CREATE SEQUENCE app.failures;
		CREATE FUNCTION app.fail() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
		  IF OLD.version = 2500 AND nextval('app.failures') <= 2 THEN RAISE 'disk full'; END IF;
		  RETURN OLD;
		END $$;
		CREATE TRIGGER fail BEFORE DELETE ON app.outbox FOR EACH ROW EXECUTE FUNCTION app.fail()`)
	r := b.newRelay(t)
	r.options.Retention = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	b.eventually(t, 0, `SELECT count(*) FROM outbox WHERE version < 6000`)
	cancel()
	<-ended
}

func TestPassesOverTheTableAreRareIfEventsStayForLong(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for retention, want := range map[time.Duration]time.Duration{
		time.Minute: time.Hour, day: time.Hour, 4 * day: 4 * day / 28, 7 * day: 6 * time.Hour, 365 * day: 6 * time.Hour,
	} {
		if got := purgeEvery(retention); got != want {
			t.Errorf("events stay for %s: a pass each %s, want %s", retention, got, want)
		}
	}
}
