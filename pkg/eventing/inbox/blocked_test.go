package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
)

// lockRow locks an aggregate's row until unlock is called.
func (b *bench) lockRow(t *testing.T, aggregate string) (unlock func()) {
	t.Helper()
	return b.lockOne(t, `SELECT FROM app.model WHERE id = $1 FOR UPDATE`, aggregate)
}

// lockOne locks the one row that query finds.
func (b *bench) lockOne(t *testing.T, query string, arg any) (unlock func()) {
	t.Helper()
	tx := pgtest.Begin(t, b.pg.Pool(t, b.pg.Admin))
	if tag, err := tx.Exec(t.Context(), query, arg); err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("%v, %v", tag, err)
	}
	unlock = sync.OnceFunc(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	t.Cleanup(unlock)
	return unlock
}

// A lock of another transaction on one row costs its aggregate time, and others nothing. It
// spends no attempt, for as long as it lasts.
func TestALockedRowBlocksItsAggregateAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c, _ := b.run(t, b.client)
	b.publish(t, event("a", 1))
	b.eventually(t, 1, version, "a")
	unlock := b.lockRow(t, "a")
	b.publish(t, event("a", 2), event("a", 3))
	pgtest.Until(t, "the locked aggregate is blocked", func() bool { return c.blocked.counts[lockedRow].Load() == 1 })
	b.publishNames(t, "free", 20)
	b.eventually(t, 21, withDone)
	// It is tried again and again meanwhile.
	b.publish(t, event("b", 1))
	b.eventually(t, 1, version, "b")
	unlock()
	b.eventually(t, 3, version, "a")
	b.eventually(t, 24, withDone)
	if n := b.count(t, `SELECT coalesce(sum(attempts + begun), 0) FROM inbox`); n != 0 || len(b.deadLettered("")) != 0 {
		t.Errorf("%d attempts and %d dead letters from another transaction's lock", n, len(b.deadLettered("")))
	}
}

// An event that is put off leaves no recorded start, however often: it is not taken for the
// cause of a crash, and its pauses grow.
func TestAnEventThatIsPutOffIsNotStarted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	c.finish(t, delivered(event("a", 1)))
	unlock := b.lockRow(t, "a")
	d := delivered(event("a", 2))
	d.messages[0].DeliveryAttempt = new(2)
	for n := range maxStarts + 2 {
		if left := c.process(t.Context(), []*delivery{d}); len(left) != 0 || d.putOffs != n+1 {
			t.Fatalf("put off %d times, not %d", d.putOffs, n+1)
		}
		if begun := b.count(t, `SELECT begun FROM inbox WHERE event_id = $1`, d.id()); begun != 0 {
			t.Fatalf("started %d times", begun)
		}
		c.blocked.unblock(<-c.blocked.released)
	}
	unlock()
	c.finish(t, d)
	if v := b.count(t, version, "a"); v != 2 || len(b.deadLettered("")) != 0 {
		t.Errorf("version %d, dead letters %v", v, b.deadLettered(""))
	}
}

// A batch whose rows are all locked is halved until each event is alone, and is put off. The batches
// after it wait for locks as if these events had met none.
func TestEachLockedEventOfABatchIsPutOff(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	var batch []*delivery
	for i := range 4 {
		c.finish(t, delivered(event(strconv.Itoa(i), 1)))
		batch = append(batch, delivered(event(strconv.Itoa(i), 2)))
		b.lockRow(t, strconv.Itoa(i))
	}
	c.process(t.Context(), batch)
	for _, d := range batch {
		if d.putOffs != 1 || d.bisections != 2 || d.lockWait != 0 {
			t.Errorf("put off %d times after %d halvings; its next batch would wait for %s", d.putOffs, d.bisections, d.lockWait)
		}
	}
}

// A lock is waited for at length only while there is no sign that it lasts.
func TestWaitsForLocks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	of := func(n int, set func(d *delivery)) []*delivery {
		batch := make([]*delivery, n)
		for i := range batch {
			batch[i] = delivered(event(fmt.Sprint(i), 1))
			set(batch[i])
		}
		return batch
	}
	fresh := func(*delivery) {}
	putOff := func(d *delivery) { d.putOffs = 6 }
	part := func(n int, f fault) func(d *delivery) {
		return func(d *delivery) {
			ended, end := context.WithCancel(t.Context())
			end() // nothing is applied
			c.bisect(ended, slices.Repeat([]*delivery{d}, n), f)
		}
	}
	for _, w := range []struct {
		what   string
		locked int64 // aggregates that wait for locks
		batch  []*delivery
		want   time.Duration
	}{
		{"a batch", 0, of(3, fresh), maxLockWait},
		{"a part of a batch that failed otherwise", 0, of(1, part(1000, eventFault)), maxLockWait},
		{"a part of a small batch that met a lock", 0, of(1, part(4, locked)), shortLockWait},
		{"a part of a batch of 100", 0, of(1, part(100, locked)), 10 * time.Millisecond},
		{"a part of a large batch", 0, of(1, part(1000, locked)), minLockWait},
		{"a batch while rows are locked", 1, of(3, fresh), shortLockWait},
		{"an event that was put off", 0, of(1, putOff), shortLockWait},
		{"a batch with an event that was put off", 0, append(of(2, fresh), of(1, putOff)...), shortLockWait},
		{"one of a hundred that were put off", 99, of(1, putOff), 10 * time.Millisecond},
		{"one of a thousand", 999, of(1, putOff), minLockWait},
	} {
		c.blocked.counts[lockedRow].Store(w.locked)
		if got := c.lockWait(w.batch); got != w.want {
			t.Errorf("%s waits for %s, want %s", w.what, got, w.want)
		}
	}
}

// The pauses of aggregates that wait for locks have ended, and the worker is busy. They still count
// as waiting, so that no batch waits for a lock at length.
func TestAggregatesWaitUntilTheWorkerTakesThem(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	c.block(t.Context(), delivered(event("0", 1)), lockedRow, func(context.Context) {})
	if n := c.blocked.counts[lockedRow].Load(); n != 1 {
		t.Errorf("the first counts as %d waiting aggregates", n)
	}
	var paused sync.WaitGroup
	for i := range 29 {
		paused.Add(1)
		c.block(t.Context(), delivered(event(fmt.Sprint(i+1), 1)), lockedRow, func(context.Context) { paused.Done() })
	}
	paused.Wait()
	if n := c.blocked.counts[lockedRow].Load(); n != 30 {
		t.Errorf("%d count as waiting", n)
	}
	if wait := c.lockWait([]*delivery{delivered(event("b", 1))}); wait != shortLockWait {
		t.Errorf("another batch waits for %s", wait)
	}
	for range 30 {
		c.blocked.unblock(<-c.blocked.released)
	}
	c.blocked.running.Wait()
	if n := c.blocked.counts[lockedRow].Load(); n != 0 {
		t.Errorf("%d count as waiting", n)
	}
}

// A success ends the suspicion that the database is slow or that the build is too old.
func TestSuccessResetsSlowAndUnknown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	c.slow.add("video/slow")
	c.finish(t, delivered(event("a", 1)), delivered(event("b", 1)))
	if len(c.slow.keys) != 0 || c.unknown.handled != 2 {
		t.Errorf("%v are slow still, %d events are known", c.slow.keys, c.unknown.handled)
	}
}

// However many events wait behind one aggregate, the first events of others are repaired,
// tried again and dead-lettered.
func TestFirstEventsProceedBehindManyBlocked(t *testing.T) {
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
	c.process(ctx, mergeDuplicates([]*delivery{delivered(event("b", 3)), poison, delivered(event("failing", 1)), delivered(event("free", 1))}))
	deadline := time.After(patience)
	for len(c.blocked.byKey) > 1 || len(c.blocked.byKey[stuck[0].key()]) != n {
		select {
		case key := <-c.blocked.released:
			c.process(ctx, mergeDuplicates(c.blocked.unblock(key)))
		case <-deadline:
			t.Fatalf("%d aggregates are held, %d events of the stuck one", len(c.blocked.byKey), len(c.blocked.byKey[stuck[0].key()]))
		}
	}
	if v, f := b.count(t, version, "b"), b.count(t, version, "free"); v != 3 || f != 1 || len(b.deadLettered("")) != 2 {
		t.Errorf("versions %d and %d, %d dead letters; want 3, 1 and 2", v, f, len(b.deadLettered("")))
	}
	cancel()
	c.blocked.all()
}

// An owner that hangs does not keep poison from being dead-lettered.
func TestAHangingOwnerDelaysNoDeadLetter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	c.functions().repair = func(ctx context.Context, _ eventing.Event) error { <-ctx.Done(); return ctx.Err() }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var gaps []*delivery
	for i := range 2 * slotCount {
		gaps = append(gaps, delivered(event(fmt.Sprint("gap", i), 2)))
	}
	c.process(ctx, mergeDuplicates(gaps))
	busy := func() bool {
		free := c.blocked.repairSlots.TryAcquire(1)
		if free {
			c.blocked.repairSlots.Release(1)
		}
		return !free
	}
	pgtest.Until(t, "every hand is at a repair", busy)
	poison := delivered(event("poison", 1))
	poison.invalid = errKeyMismatch
	c.process(ctx, []*delivery{poison})
	pgtest.Until(t, "the poison is buried", func() bool { return len(b.deadLettered("")) == 1 })
	if !busy() {
		t.Error("the repairs had ended by then")
	}
	cancel()
	c.blocked.all()
}

// A second delivery of an event joins the first. When that is finished, so is the second,
// by an ack of its own.
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
		if !c.budget.acquire(t.Context(), loadOf(d.message())) {
			t.Fatal("no room")
		}
		return d
	}
	c.process(t.Context(), mergeDuplicates([]*delivery{bring()}))
	c.process(t.Context(), mergeDuplicates([]*delivery{bring()})) // while the first cannot be dead-lettered
	if n := len(c.blocked.byKey[e.Key()]); n != 2 {
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

// The messages of blocked aggregates are delivered again and again. Only the first message of each
// event counts as a message in hand and keeps its data. All of them are acked in the end.
func TestCopiesOfBlockedEventsUseNoBudget(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	const events, times = 3, 4
	var held []eventing.Event
	for v := range int64(events) {
		held = append(held, event("a", v+2))
	}
	var all []*pubsub.Message
	for range times {
		for _, e := range held {
			m := e.Message()
			d := c.handler.newDelivery(&pubsub.Message{ID: "m", Data: m.Data, Attributes: m.Attributes, OrderingKey: e.AggregateID})
			if !c.budget.acquire(t.Context(), loadOf(d.message())) {
				t.Fatal("no room")
			}
			all = append(all, d.message())
			c.process(t.Context(), []*delivery{d})
		}
	}
	first := load{}
	for _, m := range all[:events] {
		first = first.plus(loadOf(m))
	}
	copies := load{bytes: int64(len(all)-events) * (perMessage + int64(len("a")))}
	if got := c.budget.inHand(); got != first.plus(copies) {
		t.Errorf("%v in hand, want %v and %v", got, first, copies)
	}
	b.setOwner("a", 2)
	c.finish(t)
	if v := b.count(t, version, "a"); v != events+1 || c.budget.inHand() != (load{}) || len(c.blocked.events) != 0 {
		t.Errorf("version %d; %v in hand, want nothing; %d events are remembered", v, c.budget.inHand(), len(c.blocked.events))
	}
}
