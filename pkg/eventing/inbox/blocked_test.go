package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing"
)

// until polls for what no database knows.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick, deadline := time.NewTicker(5*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// lockRow locks an aggregate's row until unlock is called.
func (b *bench) lockRow(t *testing.T, aggregate string) (unlock func()) {
	t.Helper()
	tx, err := b.pg.Pool(t, b.pg.Admin).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if tag, err := tx.Exec(t.Context(), `SELECT FROM catalog.model WHERE id = $1 FOR UPDATE`, aggregate); err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("%v, %v", tag, err)
	}
	unlock = sync.OnceFunc(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	t.Cleanup(unlock)
	return unlock
}

// Somebody's lock on one row costs its aggregate its time, others nothing, and
// nobody an attempt, for as long as it lasts.
func TestALockedRowBlocksItsAggregateAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c, _ := b.run(t, b.client)
	b.publish(t, event("a", 1))
	b.eventually(t, 1, version, "a")
	unlock := b.lockRow(t, "a")
	b.publish(t, event("a", 2), event("a", 3))
	until(t, "the locked aggregate is blocked", func() bool { return c.holds.blocked[lockedRow].Load() == 1 })
	b.publishNames(t, "free", 20)
	b.eventually(t, 21, withDone)
	// It is tried again and again meanwhile.
	b.publish(t, event("b", 1))
	b.eventually(t, 1, version, "b")
	unlock()
	b.eventually(t, 3, version, "a")
	b.eventually(t, 24, withDone)
	if n := b.count(t, `SELECT coalesce(sum(attempts + begun), 0) FROM inbox`); n != 0 || len(b.deadLettered("")) != 0 {
		t.Errorf("%d attempts and %d dead letters from somebody's lock", n, len(b.deadLettered("")))
	}
}

// An event that is put off was not begun in vain, however often: it is nobody's
// killer, and its pauses grow.
func TestWhatIsPutOffIsNotBegun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	c.finish(t, delivered(event("a", 1)))
	unlock := b.lockRow(t, "a")
	d := delivered(event("a", 2))
	d.messages[0].DeliveryAttempt = new(2)
	for n := range maxBegun + 2 {
		if left := c.process(t.Context(), []*delivery{d}); len(left) != 0 || d.waits != n+1 {
			t.Fatalf("put off %d times, not %d", d.waits, n+1)
		}
		if begun := b.count(t, `SELECT begun FROM inbox WHERE event_id = $1`, d.id()); begun != 0 {
			t.Fatalf("begun %d times", begun)
		}
		c.holds.take(<-c.holds.released)
	}
	if lockWait([]*delivery{d}) != minLockWait || lockWait([]*delivery{delivered(event("b", 1))}) != maxLockWait {
		t.Error("it does not wait less than another")
	}
	unlock()
	c.finish(t, d)
	if v := b.count(t, version, "a"); v != 2 || len(b.deadLettered("")) != 0 {
		t.Errorf("version %d, dead letters %v", v, b.deadLettered(""))
	}
}

// A success says that neither the database nor the build is to blame.
func TestSuccessIsHeardOf(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	c.slow.add("video/slow", maxSlow)
	c.finish(t, delivered(event("a", 1)), delivered(event("b", 1)))
	if len(c.slow.keys) != 0 || c.unknown.handled != 2 {
		t.Errorf("%v are slow still, %d events are known", c.slow.keys, c.unknown.handled)
	}
}

// However much waits behind one aggregate, the first events of others are
// repaired, tried again and buried.
func TestHeadsAreWorkedOnWhateverIsHeld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const n = 6000
	var stuck []*delivery
	for v := range int64(n) {
		stuck = append(stuck, delivered(event("a", v+2)))
	}
	for part := range slices.Chunk(stuck, maxBatch) {
		c.process(ctx, part)
	}
	b.setOwner("b", 3)
	b.setSpoil(func(e eventing.Event) error {
		if e.AggregateID == "failing" {
			return eventing.Permanent(errors.New("never"))
		}
		return nil
	})
	poison := delivered(event("poison", 1))
	poison.invalid = errKeyMismatch
	c.process(ctx, fold([]*delivery{delivered(event("b", 3)), poison, delivered(event("failing", 1)), delivered(event("free", 1))}))
	deadline := time.After(patience)
	for len(c.holds.byKey) > 1 || len(c.holds.byKey[stuck[0].key()]) != n {
		select {
		case key := <-c.holds.released:
			c.process(ctx, fold(c.holds.take(key)))
		case <-deadline:
			t.Fatalf("%d aggregates are held, %d events of the stuck one", len(c.holds.byKey), len(c.holds.byKey[stuck[0].key()]))
		}
	}
	if v, f := b.count(t, version, "b"), b.count(t, version, "free"); v != 3 || f != 1 || len(b.deadLettered("")) != 2 {
		t.Errorf("versions %d and %d, %d dead letters; want 3, 1 and 2", v, f, len(b.deadLettered("")))
	}
	cancel()
	c.holds.all()
}

// An owner that hangs keeps no poison from being buried.
func TestAHangingOwnerDelaysNoBurial(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	c.handler.Repair = func(ctx context.Context, _ eventing.Event) error { <-ctx.Done(); return ctx.Err() }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var gaps []*delivery
	for i := range 2 * handsAtOnce {
		gaps = append(gaps, delivered(event(fmt.Sprint("gap", i), 2)))
	}
	c.process(ctx, fold(gaps))
	until(t, "every hand is at a repair", func() bool { return len(c.holds.repairers) == handsAtOnce })
	poison := delivered(event("poison", 1))
	poison.invalid = errKeyMismatch
	c.process(ctx, []*delivery{poison})
	until(t, "the poison is buried", func() bool { return len(b.deadLettered("")) == 1 })
	if len(c.holds.repairers) != handsAtOnce {
		t.Error("the repairs had ended by then")
	}
	cancel()
	c.holds.all()
}

// What is remembered of repairs is forgotten.
func TestRecentRepairsAreForgotten(t *testing.T) {
	t.Parallel()
	var r recent
	r.note("a")
	if d := r.wait("a"); d < repairEvery/2 || r.wait("b") != 0 {
		t.Errorf("wait %v after a repair of just now, %v without one", d, r.wait("b"))
	}
	for range 2 {
		if r.wait("a") == 0 {
			t.Error("forgotten with the first generation")
		}
		r.turned = r.turned.Add(-3 * repairEvery)
		r.note("b")
	}
	if len(r.young)+len(r.old) > 2 || !r.young["a"].IsZero() || !r.old["a"].IsZero() {
		t.Errorf("remembered: %v, %v", r.young, r.old)
	}
}

// A second delivery of an event joins the first. Once that is settled, so is the
// second, by an ack of its own.
func TestASecondCopyOfPoisonIsSettled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	if err := b.client.TopicAdminClient.DeleteTopic(t.Context(), &pubsubpb.DeleteTopicRequest{Topic: deadTopic}); err != nil {
		t.Fatal(err)
	}
	e := event("a", 1)
	bring := func() *delivery {
		d := delivered(e)
		d.invalid = errKeyMismatch
		if !c.budget.take(t.Context(), loadOf(d.message())) {
			t.Fatal("no room")
		}
		return d
	}
	c.process(t.Context(), fold([]*delivery{bring()}))
	c.process(t.Context(), fold([]*delivery{bring()})) // while the first cannot be buried
	if n := c.budget.inHand().messages; n != 2 {
		t.Fatalf("%d in hand, want both", n)
	}
	if _, err := b.client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: deadTopic}); err != nil {
		t.Fatal(err)
	}
	c.finish(t)
	if left := c.budget.inHand(); left != (load{}) || len(b.deadLettered("")) != 1 {
		t.Errorf("%v in hand after everything is settled, %d dead letters", left, len(b.deadLettered("")))
	}
}

// A database that answers, and takes no writes in time, is away: whatever
// runs into a time limit meanwhile is nobody's fault.
func TestABrownoutIsNobodysFault(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	admin := b.pg.Pool(t, b.pg.Admin)
	exec := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE FUNCTION catalog.stall() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END'`)
	for _, table := range []string{"model", "inbox_runs"} {
		exec(`CREATE TRIGGER stall BEFORE INSERT OR UPDATE ON catalog.` + table + ` FOR EACH ROW EXECUTE FUNCTION catalog.stall()`)
	}
	exec(`DO $$ BEGIN EXECUTE format('ALTER ROLE catalog_service IN DATABASE %I SET statement_timeout = ''100ms''', current_database()); END $$`)
	b.db.Reset()
	c := b.consumer(t)
	var tries atomic.Int64
	b.setSpoil(func(eventing.Event) error { tries.Add(1); return nil })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.process(ctx, fold([]*delivery{delivered(event("a", 1)), delivered(event("b", 1)), delivered(event("c", 1))}))
		for ctx.Err() == nil && len(c.holds.byKey) > 0 {
			select {
			case key := <-c.holds.released:
				c.process(ctx, fold(c.holds.take(key)))
			case <-ctx.Done():
			}
		}
	}()
	until(t, "ten tries", func() bool { return tries.Load() >= 10 })
	if n := b.count(t, `SELECT coalesce(sum(attempts), 0) FROM inbox`); n != 0 || len(b.deadLettered("")) != 0 {
		t.Errorf("%d attempts and %d dead letters while nothing can be written", n, len(b.deadLettered("")))
	}
	exec(`DROP FUNCTION catalog.stall CASCADE`)
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("not applied afterwards")
	}
	b.eventually(t, 3, withDone)
}

// Where the smallest write passes and every event meets a time limit all the
// same, events of a few aggregates in a row say that it is not theirs.
func TestEverythingIsSlow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	var slow atomic.Bool
	slow.Store(true)
	c.handler.Apply = Each(func(ctx context.Context, tx pgx.Tx, change Change) (Outcome, error) {
		if slow.Load() {
			if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = '10ms'; SELECT pg_sleep(10)`); err != nil {
				return 0, err
			}
		}
		return b.apply(ctx, tx, change)
	})
	var batch []*delivery
	for i := range 6 {
		batch = append(batch, delivered(event(fmt.Sprint("a", i), 1)))
	}
	c.process(t.Context(), fold(batch))
	for range 3 * len(batch) {
		select {
		case key := <-c.holds.released:
			c.process(t.Context(), fold(c.holds.take(key)))
		case <-time.After(patience):
			t.Fatal("not tried again")
		}
	}
	if n := b.count(t, `SELECT coalesce(max(attempts), 0) FROM inbox`); n > 1 || len(b.deadLettered("")) != 0 {
		t.Errorf("up to %d attempts are counted, %d dead letters", n, len(b.deadLettered("")))
	}
	slow.Store(false)
	c.finish(t)
	if n := b.count(t, withDone); n != 6 {
		t.Errorf("%d are done", n)
	}
}

// commitLoser is a connection that breaks after a COMMIT was done and before
// anybody heard of it.
type commitLoser struct {
	net.Conn

	armed  *atomic.Bool
	losing bool
}

func (c *commitLoser) Write(p []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(p), []byte("commit\x00")) && c.armed.CompareAndSwap(true, false) {
		c.losing = true
	}
	return c.Conn.Write(p)
}

func (c *commitLoser) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.losing && err == nil {
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// After a COMMIT of which nobody knows whether it was one, the second try finds
// everything done. Who waits for the effect is told all the same.
func TestAnUnknownCommitIsTold(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var armed atomic.Bool
	config, err := pgxpool.ParseConfig(b.pg.CatalogURL)
	if err != nil {
		t.Fatal(err)
	}
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &commitLoser{Conn: conn, armed: &armed}, err
	}
	if b.db, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.db.Close)
	c := b.consumer(t)
	var told []string
	c.handler.Committed = func(keys ...string) { told = append(told, keys...) }
	armed.Store(true)
	c.finish(t, delivered(event("a", 1)), delivered(event("b", 1)))
	if slices.Sort(told); !slices.Equal(told, []string{"video/a", "video/b"}) || armed.Load() {
		t.Errorf("told %v, want both; the commit was lost: %v", told, !armed.Load())
	}
	if n := b.count(t, `SELECT coalesce(sum(effects), 0) FROM model`); n != 2 {
		t.Errorf("%d effects", n)
	}
}

// A producer that leaves out versions costs its owner a call now and then, not one
// for each event.
func TestVersionHolesCostFewCalls(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var calls atomic.Int64
	c := b.consumer(t)
	c.handler.Repair = func(ctx context.Context, e eventing.Event) error {
		calls.Add(1)
		return b.repair(ctx, e)
	}
	began := time.Now()
	const events = 200
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() { c.work(ctx) })
	for i := range int64(events) {
		b.setOwner("a", 2*i+1) // and no further: the next one is a gap again
		c.incoming <- delivered(event("a", 2*i+1))
		c.incoming <- delivered(event("other", i+1)) // is done behind it
		b.eventually(t, int(i)+1, version, "other")
	}
	b.eventually(t, 2*events, withDone)
	cancel()
	working.Wait()
	most := int64(time.Since(began)/repairEvery) + 2
	t.Logf("%d calls for %d events with a hole before each, in %v", calls.Load(), events, time.Since(began))
	if calls.Load() > most {
		t.Errorf("%d calls, want at most %d", calls.Load(), most)
	}
}
