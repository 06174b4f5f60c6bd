package outbox

import "testing"

// The tests of this file are histories that an exhaustive search through a model of the relays has found.

// A relay takes over a dead relay while it has an event in flight that is older than the events of the dead
// one. The low that it writes is its own then. It must look for the events of the dead relay all the same.
func TestATakeoverWithAnOlderLowOfItsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	other, lost := b.handedOver(t)
	for _, relay := range []*Relay{r, other} {
		if err := relay.writeHeartbeat(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	b.append(t, "a", 1, 1)
	r.claim(t, claimed)
	<-claimed // the broker takes its time
	other.claim(t, lost)
	b.append(t, "b", 1, 1)
	other.claim(t, lost)
	r.claim(t, claimed)
	if err := other.writeHeartbeat(t.Context(), false); err != nil || len(lost) != 1 || len(claimed) != 0 {
		t.Fatal(len(lost), len(claimed), err)
	}
	b.exec(t, `UPDATE outbox_relays SET seen_at = now() - interval '16 s' WHERE token = '`+other.token+`'`)
	if err := r.writeHeartbeat(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox_relays`); n != 1 {
		t.Fatalf("%d relays are left", n)
	}
	b.exec(t, `UPDATE outbox SET locked_at = now() WHERE aggregate_id = 'a'`) // it is renewed
	if !r.scanDue(t, claimed) {
		t.Fatal("the dead relay's row is gone, and no scan looks for its event")
	}
	b.exec(t, `UPDATE outbox SET locked_at = now() - interval '21 s' WHERE aggregate_id = 'b'`)
	if r.scanDue(t, claimed); len(claimed) != 1 {
		t.Error("the dead relay's event is not claimed when its lease has run out")
	}
}
