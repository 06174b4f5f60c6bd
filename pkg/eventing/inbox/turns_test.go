package inbox

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// One message of a tenant, with 5,000 of another in hand before it, is in the first batch.
// The batches of several tenants are short, those of one are not.
func TestABusyTenantHoldsUpNoOtherInHand(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	const busy = 5000
	for i := range busy {
		e := event(fmt.Sprintf("busy%04d", i), 1)
		e.TenantID = "busy"
		c.incoming <- delivered(e)
	}
	quiet := event("quiet", 1)
	quiet.TenantID = "quiet"
	c.incoming <- delivered(quiet)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var batches [][]Change
	total := 0
	c.functions().apply = func(_ context.Context, _ pgx.Tx, changes []Change) ([]Outcome, error) {
		batches, total = append(batches, changes), total+len(changes)
		if total > busy {
			cancel()
		}
		return slices.Repeat([]Outcome{Applied}, len(changes)), nil
	}
	var working sync.WaitGroup
	working.Go(func() { c.work(ctx) })
	working.Wait()
	first := slices.IndexFunc(batches, func(b []Change) bool {
		return slices.ContainsFunc(b, func(c Change) bool { return c.Event.TenantID == "quiet" })
	})
	if first != 0 || len(batches[0]) != sharedBatch {
		t.Errorf("in batch %d of %d, the first has %d", first, len(batches), len(batches[0]))
	}
	alone := b.consumer(t)
	for i := range maxBatch + 1 {
		alone.incoming <- delivered(event(fmt.Sprint(i), 1))
	}
	if n := len(alone.gather()); n != maxBatch || alone.waiting.count != 1 {
		t.Errorf("a batch of one tenant has %d, %d wait", n, alone.waiting.count)
	}
}

// Where few messages wait, those of several tenants share short batches: 20 of a busy tenant leave
// by eights, and one that comes after them is in the first batch.
func TestFewMessagesOfSeveralTenantsShareShortBatches(t *testing.T) {
	t.Parallel()
	waiting, now := turns{lanes: map[string]*lane{}}, time.Now()
	for i := range 21 {
		e := event(fmt.Sprint(i), 1)
		if e.TenantID = "busy"; i == 20 {
			e.TenantID = "quiet"
		}
		waiting.push(delivered(e), now)
	}
	var sizes []int
	for waiting.count > 0 {
		batch := waiting.batch(now)
		sizes = append(sizes, len(batch))
		isQuiet := func(d *delivery) bool { return d.event().TenantID == "quiet" }
		if has := slices.ContainsFunc(batch, isQuiet); has != (len(sizes) == 1) {
			t.Errorf("batch %d has the quiet tenant's message: %t", len(sizes), has)
		}
	}
	if want := []int{8, 8, 5}; !slices.Equal(sizes, want) {
		t.Errorf("batches of %v, want %v", sizes, want)
	}
}

// As many tenants as a batch has messages have a part in the first batch.
func TestEachTenantHasAPartInTheNextBatch(t *testing.T) {
	t.Parallel()
	waiting, now := turns{lanes: map[string]*lane{}}, time.Now()
	for i := range 4 * leastShared {
		e := event(fmt.Sprint(i), 1)
		e.TenantID = fmt.Sprint("t", min(i/4, leastShared-1))
		waiting.push(delivered(e), now)
	}
	seen := map[string]int{}
	for _, d := range waiting.batch(now) {
		seen[d.event().TenantID]++
	}
	if len(seen) != leastShared {
		t.Errorf("messages of the tenants in the first batch: %v", seen)
	}
}

// Messages that are in no batch yet are given back at the end.
func TestWaitingMessagesAreGivenBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	var all []*delivery
	for i := range 3 {
		d := delivered(event(fmt.Sprint(i), 1))
		all = append(all, d)
		c.waiting.push(d, time.Now())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.work(ctx)
	for _, d := range all {
		if d.answered != len(d.messages) {
			t.Error("a message has no answer")
		}
	}
}

// A thousand events wait behind one gap. After the gap, they take turns with another tenant's
// message, in their order, and before the later messages of their own tenant.
func TestAnUnblockedAggregateTakesTurns(t *testing.T) {
	t.Parallel()
	waiting, now := turns{lanes: map[string]*lane{}}, time.Now()
	of := func(tenant, aggregate string, version int64) *delivery {
		e := event(aggregate, version)
		e.TenantID = tenant
		return delivered(e)
	}
	var blocked []*delivery
	for v := range int64(1000) {
		blocked = append(blocked, of("busy", "a", v+2))
	}
	waiting.push(of("busy", "a", 1002), now)
	waiting.push(of("quiet", "q", 1), now)
	batch := waiting.first(blocked, now)
	if len(batch) != sharedBatch {
		t.Errorf("the first batch has %d", len(batch))
	}
	var versions []int64
	quietAt, batches := -1, 0
	for ; len(batch) > 0; batch = waiting.batch(now) {
		for _, d := range batch {
			if d.event().TenantID == "quiet" {
				quietAt = batches
			} else {
				versions = append(versions, d.event().Version)
			}
		}
		batches++
	}
	if len(versions) != 1001 || !slices.IsSorted(versions) || quietAt != 1 {
		t.Errorf("%d events of the busy tenant, in order: %t; the quiet tenant's message in batch %d", len(versions), slices.IsSorted(versions), quietAt)
	}
	lockedHead := turns{lanes: map[string]*lane{}}
	blocked[0].putOffs = 1
	if n := len(lockedHead.first(blocked, now)); n != 1 || lockedHead.count != 999 {
		t.Errorf("%d events of an aggregate that met a lock in a batch, %d wait", n, lockedHead.count)
	}
	again := turns{lanes: map[string]*lane{}}
	first := of("busy", "a", 1) // was delivered again while the head waited
	if got := again.first(append([]*delivery{first}, blocked...), now); len(got) != 2 || got[1] != blocked[0] {
		t.Errorf("%d events in a batch, which ought to end with the second one: that met a lock", len(got))
	}
	blocked[0].putOffs, blocked[0].breaks = 0, 1
	breaking := turns{lanes: map[string]*lane{}}
	if n := len(breaking.first(blocked, now)); n != 1 || breaking.count != 999 {
		t.Errorf("%d events of an aggregate that broke a connection in a batch, %d wait", n, breaking.count)
	}
	blocked[0].breaks = 0
	alone := turns{lanes: map[string]*lane{}}
	if n := len(alone.first(slices.Repeat(blocked, 2), now)); n != maxBatch || alone.count != 1000 {
		t.Errorf("%d of one tenant in a batch, %d wait", n, alone.count)
	}
}
