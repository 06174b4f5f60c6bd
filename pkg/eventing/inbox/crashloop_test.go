package inbox

import "testing"

// redelivered is another delivery of d's event, with the broker's count.
func redelivered(d *delivery, attempt int) *delivery {
	again := delivered(d.event())
	again.messages[0].DeliveryAttempt = &attempt
	return again
}

// An event is delivered again and again while its aggregate is blocked. No process applies it, so
// none of these deliveries counts as a start of it.
func TestDeliveriesOfABlockedEventAreNoStarts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	d := delivered(event("a", 2)) // a gap, and the owner is away
	for n := range maxStarts + 2 {
		c.process(t.Context(), mergeDuplicates([]*delivery{redelivered(d, n+1)}))
	}
	if n := b.count(t, `SELECT begun FROM inbox WHERE event_id = $1`, d.id()); n != 0 {
		t.Errorf("%d starts are recorded", n)
	}
	b.setOwner("a", 2)
	c.finish(t)
	if dead := b.deadLettered(""); len(dead) != 0 || b.count(t, withDone) != 1 {
		t.Errorf("%d are done, dead letters: %v", b.count(t, withDone), dead)
	}
}

// Processes are killed for another reason while an event waits behind a gap.
func TestAnEventThatWaitsIsNoKiller(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	head, behind := delivered(event("a", 2)), delivered(event("a", 3))
	for n := range maxStarts + 2 {
		c := b.consumer(t)
		c.process(t.Context(), mergeDuplicates([]*delivery{redelivered(head, n+2)}))
		c.process(t.Context(), mergeDuplicates([]*delivery{redelivered(behind, n+2)}))
	}
	c := b.consumer(t)
	b.setOwner("a", 2)
	c.finish(t, redelivered(head, maxStarts+4), redelivered(behind, maxStarts+4))
	if v, dead := b.count(t, version, "a"), b.deadLettered(""); v != 3 || len(dead) != 0 {
		t.Errorf("the model is at version %d, want 3; dead letters: %v", v, dead)
	}
}

// A process was killed while it applied two events of an aggregate. The first one turns out to wait
// for the owner. The second one is not tried before it, so it is not started again either.
func TestAnEventBehindABlockedOneIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	head, behind := delivered(event("a", 2)), delivered(event("a", 3))
	if err := b.consumer(t).markStarted(t.Context(), []*delivery{redelivered(head, 2), redelivered(behind, 2)}); err != nil {
		t.Fatal(err)
	}
	for n := range maxStarts + 2 {
		b.consumer(t).process(t.Context(), mergeDuplicates([]*delivery{redelivered(head, n+3), redelivered(behind, n+3)}))
	}
	if n := b.count(t, `SELECT begun FROM inbox WHERE event_id = $1`, behind.id()); n != 1 {
		t.Errorf("%d starts of the event behind are recorded, want the one in the process that was killed", n)
	}
}
