package inbox

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/checkpoint"
)

// offsetsTable is the table of package checkpoint, with a view that has no rule of its own.
const offsetsTable = `
	CREATE TABLE app.offsets (
	  consumer_group text, instance text, source text NOT NULL DEFAULT 'save', subscription text NOT NULL, message_id text NOT NULL,
	  publish_time timestamptz NOT NULL, lag_millis bigint NOT NULL, updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	  updated_by text NOT NULL, PRIMARY KEY (consumer_group, instance));
	CREATE VIEW app.offsets_by_group AS
	  SELECT consumer_group, subscription, min(publish_time) AS safe_position, max(publish_time) AS publish_time,
	         NULL::timestamptz AS oldest_held, count(*) AS instances, max(updated_at) AS updated_at
	    FROM app.offsets GROUP BY 1, 2;
	GRANT SELECT, INSERT, UPDATE, DELETE ON app.offsets TO app_service;
	GRANT SELECT ON app.offsets_by_group TO app_service`

func (b *bench) withOffsets(t *testing.T) *checkpoint.Store {
	t.Helper()
	b.execAdmin(t, offsetsTable)
	return b.offsets()
}

func (b *bench) offsets() *checkpoint.Store {
	names := checkpoint.Names{Table: "offsets", Group: "g", Subscription: subscription, Metrics: "test.offset"}
	return checkpoint.New(b.db, names, "here", slog.New(slog.DiscardHandler))
}

func (b *bench) execAdmin(t *testing.T, sql string) {
	t.Helper()
	pgtest.Exec(t, b.pg.Pool(t, b.pg.Admin), sql)
}

func (b *bench) checkpointed(t *testing.T, store *checkpoint.Store) *Consumer {
	t.Helper()
	c := b.consumer(t)
	c.options.Checkpoints = store
	return c
}

// published is a delivery of a message that was published so many seconds after start.
func published(e eventing.Event, start time.Time, seconds int) *delivery {
	d := delivered(e)
	d.messages[0].ID, d.messages[0].PublishTime = e.AggregateID, start.Add(time.Duration(seconds)*time.Second)
	return d
}

// A seek to a saved offset acknowledges all messages up to it. So it stays before the messages of
// aggregates that wait, for whatever reason, and the lag does not count them.
func TestOffsetStaysBeforeBlockedMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store, start := b.withOffsets(t), time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	c := b.checkpointed(t, store)
	c.process(t.Context(), []*delivery{published(event("a", 1), start, -1)})
	unlock := b.lockRow(t, "a")
	c.process(t.Context(), []*delivery{published(event("a", 2), start, 0)})
	c.process(t.Context(), []*delivery{published(event("b", 1), start, 1800)})
	rows, err := store.Rows(t.Context())
	if err != nil || len(rows) != 1 || !rows[0].PublishTime.Before(start) || rows[0].LagMillis > 1_900_000 {
		t.Fatalf("saved %+v, %v; want a position before %v, with the lag of the newest message", rows, err, start)
	}
	unlock()
	c.finish(t)
	c.process(t.Context(), []*delivery{published(event("b", 2), start, 1900)})
	if rows, err = store.Rows(t.Context()); err != nil || !rows[0].PublishTime.Equal(start.Add(1900*time.Second)) {
		t.Errorf("saved %+v, %v; want the newest message's", rows, err)
	}
}

// A seek to an offset also acknowledges the messages of the same instant.
func TestOffsetStaysBeforeAMessageOfTheSameTime(t *testing.T) {
	t.Parallel()
	start := time.Now().UTC().Truncate(time.Second)
	for name, wait := range map[string]func(*Consumer, *delivery){
		"blocked": func(c *Consumer, d *delivery) { c.blocked.add(d) },
		"waiting": func(c *Consumer, d *delivery) { c.waiting.push(d, start) },
	} {
		c := &Consumer{blocked: newBlockedAggregates(), waiting: turns{lanes: map[string]*lane{}}}
		wait(c, published(event("a", 1), start, 0))
		o, newest := c.offset([]*delivery{published(event("b", 1), start, 0)})
		if !o.PublishTime.Before(start) || !newest.Equal(start) {
			t.Errorf("%s: saved %s, and %s as the newest time; want an offset before %s", name, o.PublishTime, newest, start)
		}
	}
}

// The inbox row of an event that waits is held, for whatever reason, and keeps the safe position
// before the event after this instance has ended.
func TestAnEventThatWaitsIsHeld(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*bench, *delivery){
		"locked": func(b *bench, _ *delivery) {
			b.execAdmin(t, `INSERT INTO app.model VALUES ('a', 0, 0)`)
			b.lockRow(t, "a")
		},
		"unknown": func(_ *bench, d *delivery) { d.invalid = fmt.Errorf("schema_version: 2: %w", ErrUnknown) },
		"dead letter refused": func(b *bench, d *delivery) {
			d.invalid = errors.New("not decodable")
			if err := b.client.TopicAdminClient.DeleteTopic(t.Context(), &pubsubpb.DeleteTopicRequest{Topic: deadTopic}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			start := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
			c := b.checkpointed(t, b.withOffsets(t))
			d := published(event("a", 1), start, 0)
			prepare(b, d)
			c.process(t.Context(), mergeDuplicates([]*delivery{d, published(event("b", 1), start, 1800)}))
			b.eventually(t, 1, `SELECT count(*) FROM inbox WHERE status = 'held' AND publish_time = $1`, start)
			if n := b.count(t, withDone); n != 1 {
				t.Errorf("%d are done, want the other one", n)
			}
		})
	}
}

// The tenants take turns, so an older message may wait while a newer one is applied.
func TestOffsetStaysBeforeWaitingMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store, start := b.withOffsets(t), time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	c := b.checkpointed(t, store)
	for i := range 40 {
		e := event(fmt.Sprint("busy", i), 1)
		if e.TenantID = "busy"; i == 39 {
			e = event("quiet", 1)
		}
		c.waiting.push(published(e, start, i), time.Now())
	}
	batch := append(c.gather(), c.gather()...)
	waits := c.waiting.lanes["busy"].messages[0].message().PublishTime
	c.process(t.Context(), mergeDuplicates(batch))
	rows, err := store.Rows(t.Context())
	if err != nil || len(rows) != 1 || !rows[0].PublishTime.Before(waits) || b.count(t, version, "quiet") != 1 {
		t.Errorf("saved %+v, %v; want a position before %v", rows, err, waits)
	}
}

// A batch saves the greatest publish time of its messages. A later batch with earlier
// messages leaves it, and so does a duplicate.
func TestOffsetMovesForward(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store, start := b.withOffsets(t), time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	c := b.checkpointed(t, store)
	at := func(want int, message string, lag time.Duration) {
		t.Helper()
		rows, err := store.Rows(t.Context())
		if err != nil || len(rows) != 1 {
			t.Fatalf("%+v, %v", rows, err)
		}
		r := rows[0]
		if got := r.PublishTime.Sub(start).Seconds(); got != float64(want) || r.MessageID != message {
			t.Errorf("the offset is %v s, of message %s, want %d of %s", got, r.MessageID, want, message)
		}
		if r.UpdatedBy != "here" || r.Instance != c.store.instance.String() {
			t.Errorf("it is by %s in %s", r.Instance, r.UpdatedBy)
		}
		if got := time.Duration(r.LagMillis) * time.Millisecond; got < lag || got > lag+10*time.Minute {
			t.Errorf("the lag is %v, want about %v", got, lag)
		}
	}
	a := event("a", 1)
	c.finish(t, published(a, start, 10), published(event("b", 1), start, 30), published(event("c", 1), start, 20))
	at(30, "b", time.Hour-30*time.Second)
	c.finish(t, published(event("d", 1), start, -1800))
	at(30, "b", time.Hour+30*time.Minute)
	c.finish(t, published(a, start, 10))
	at(30, "b", time.Hour-30*time.Second)
	c.finish(t, published(a, start, 1800)) // published again
	at(1800, "a", 30*time.Minute)
}

// Another instance has a row of its own, which does not wait for the first one's.
func TestEachInstanceHasAnOffset(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := b.withOffsets(t)
	first, second := b.checkpointed(t, store), b.checkpointed(t, store)
	first.finish(t, published(event("a", 1), time.Now(), -5))
	tx := pgtest.Begin(t, b.pg.Pool(t, b.pg.Admin))
	defer tx.Rollback(t.Context())
	pgtest.Exec(t, tx, `SELECT FROM app.offsets FOR UPDATE`)
	second.finish(t, published(event("b", 1), time.Now(), -3))
	if rows, err := store.Rows(t.Context()); err != nil || len(rows) != 2 {
		t.Errorf("%+v, %v: want one of each", rows, err)
	}
}

// A transaction that is rolled back saves nothing, and one that cannot save applies
// nothing: its events wait, and spend no attempt.
func TestOffsetAndEffectsAreOneTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := b.offsets()
	c := b.checkpointed(t, store)
	d := published(event("a", 1), time.Now(), -5)
	if _, err := c.tryBatch(t.Context(), []*delivery{d}); err == nil || faultOf(err) != outage {
		t.Errorf("without the table: %v", err)
	}
	if v := b.count(t, version, "a"); v != 0 {
		t.Errorf("version %d is applied without its offset", v)
	}
	b.execAdmin(t, offsetsTable)
	b.setSpoil(func(eventing.Event) error { return errors.New("teapot") })
	if _, err := c.tryBatch(t.Context(), []*delivery{d}); err == nil {
		t.Error("the handler's error is lost")
	}
	if rows, err := store.Rows(t.Context()); err != nil || len(rows) != 0 {
		t.Errorf("an offset without its effect: %+v, %v", rows, err)
	}
	b.setSpoil(nil)
	c.finish(t, published(event("b", 1), time.Now(), -5))
	if v, rows := b.count(t, version, "b"), b.count(t, `SELECT count(*) FROM offsets`); v != 1 || rows != 1 {
		t.Errorf("version %d with %d offsets", v, rows)
	}
}

// The save is one of the statements behind a transaction pooler, too.
func TestOffsetBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.db = b.pg.Pool(t, b.pg.Pooled(t, b.pg.URL))
	store := b.withOffsets(t)
	c := b.checkpointed(t, store)
	c.finish(t, published(event("a", 1), time.Now(), -5), published(event("b", 1), time.Now(), -3))
	at, err := store.Load(t.Context())
	if err != nil || at.Instances != 1 || at.Subscription != subscription {
		t.Errorf("%+v, %v", at, err)
	}
}

// A group that has another subscription now has no position in it, whatever it has saved for the one before. A
// seek there would acknowledge messages that were not applied.
func TestAPositionIsOfItsSubscription(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := b.withOffsets(t)
	b.checkpointed(t, store).finish(t, published(event("a", 1), time.Now(), -5))
	if at, err := store.Load(t.Context()); err != nil || at.Instances != 1 || at.SafePosition.IsZero() {
		t.Errorf("%+v, %v; want its position", at, err)
	}
	for name, names := range map[string]checkpoint.Names{
		"subscription": {Table: "offsets", Group: "g", Subscription: "another", Metrics: "test.offset"},
		"group":        {Table: "offsets", Group: "another", Subscription: subscription, Metrics: "test.offset"},
	} {
		other := checkpoint.New(b.db, names, "here", slog.New(slog.DiscardHandler))
		want := checkpoint.Position{Group: names.Group, Subscription: names.Subscription}
		if at, err := other.Load(t.Context()); err != nil || at != want {
			t.Errorf("of another %s: %+v, %v; want none", name, at, err)
		}
	}
}

// The row of an instance that ended long ago goes, others stay.
func TestFormerInstancesAreForgotten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := b.withOffsets(t)
	b.execAdmin(t, `
		INSERT INTO app.offsets (consumer_group, instance, source, subscription, message_id, publish_time, lag_millis, updated_at, updated_by)
		SELECT g, source || age, source, '', '', now(), 0, now() - age, ''
		  FROM unnest(ARRAY['save', 'start', 'reset']) AS source, unnest(ARRAY['30 days'::interval, '28 days', '24 days']) AS age,
		       unnest(ARRAY['g', 'other']) AS g`)
	c := b.checkpointed(t, store)
	if err := c.options.Checkpoints.Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, `SELECT count(*) FROM offsets`); n != 18 {
		t.Errorf("%d rows of a group that stands still, want all", n)
	}
	c.finish(t, published(event("a", 1), time.Now(), -5))
	if err := c.options.Checkpoints.Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, `SELECT count(*) FROM offsets WHERE source = 'save' AND consumer_group = 'g'`); n != 1 {
		t.Errorf("%d rows of instances, want the one that runs", n)
	}
	other := checkpoint.New(b.db, checkpoint.Names{Table: "offsets", Group: "other", Metrics: "test.offset"}, "here", slog.New(slog.DiscardHandler))
	if err := other.Forget(t.Context()); err != nil { // it stands still, whatever the first one does
		t.Fatal(err)
	}
	if n := b.count(t, `SELECT count(*) FROM offsets`); n != 18-3+1 {
		t.Errorf("%d rows", n)
	}
}
