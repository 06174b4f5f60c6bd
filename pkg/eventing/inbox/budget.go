package inbox

import (
	"context"
	"slices"
	"sync"

	"cloud.google.com/go/pubsub/v2"
)

// perMessage is an estimate of the bytes that a message takes in memory besides its data, ordering key and
// attributes.
const perMessage = 1 << 10

// load is a number of messages and the bytes that they take.
type load struct{ messages, bytes int64 }

// loadOf returns the load of m. It counts the data twice, as received and as decoded. A message
// without data and attributes is a copy (method strip of delivery) and does not count as a message.
// The broker delivers no such message.
func loadOf(m *pubsub.Message) load {
	n := perMessage + 2*len(m.Data) + len(m.OrderingKey)
	for key, value := range m.Attributes {
		n += len(key) + len(value)
	}
	if len(m.Data)+len(m.Attributes) == 0 {
		return load{bytes: int64(n)}
	}
	return load{messages: 1, bytes: int64(n)}
}

func (l load) plus(o load) load  { return load{l.messages + o.messages, l.bytes + o.bytes} }
func (l load) minus(o load) load { return load{l.messages - o.messages, l.bytes - o.bytes} }
func (l load) part(n, of int64) load {
	return load{l.messages * n / of, l.bytes * n / of}
}

// covers reports whether l is at least o in both respects.
func (l load) covers(o load) bool { return l.messages >= o.messages && l.bytes >= o.bytes }

// budget bounds the messages in hand, from callback to ack, because neither the client's flow
// control nor the server's bounds them: see "Bounds" in the package doc.
type budget struct {
	limit load

	mu    sync.Mutex
	used  load
	queue []*waiter
	// changed is closed at the next release. It is nil if no caller of wait waits for a release.
	changed chan struct{}
}

type waiter struct {
	load

	admitted chan struct{}
}

// acquire waits for room for l, first come, first served, and reports whether it got the room
// before ctx ended. A message that is larger than the budget gets room when no other message is
// in hand.
//
// A large message holds up smaller messages behind it, even if they would fit. If small messages
// overtook it, a steady load of them would take each part of the budget as it comes free, and the
// large message and its aggregate would wait for ever. Because the order is kept, the large message
// waits only until enough messages in hand are acknowledged. The largest message of Pub/Sub takes
// less than a third of the default budget, so the queue stands still only if blocked aggregates
// hold two thirds of the budget.
func (b *budget) acquire(ctx context.Context, l load) bool {
	b.mu.Lock()
	if len(b.queue) == 0 && b.fits(l) {
		b.used = b.used.plus(l)
		b.mu.Unlock()
		return true
	}
	w := &waiter{load: l, admitted: make(chan struct{})}
	b.queue = append(b.queue, w)
	b.mu.Unlock()
	select {
	case <-w.admitted:
		return true
	case <-ctx.Done():
		return !b.withdraw(w)
	}
}

// withdraw takes w out of the queue and returns true, or returns false if w was admitted
// meanwhile.
func (b *budget) withdraw(w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.queue, w)
	if i < 0 {
		return false
	}
	b.queue = slices.Delete(b.queue, i, i+1)
	b.admit()
	return true
}

func (b *budget) release(l load) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = b.used.minus(l)
	b.admit()
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

func (b *budget) admit() {
	for len(b.queue) > 0 && b.fits(b.queue[0].load) {
		b.used = b.used.plus(b.queue[0].load)
		close(b.queue[0].admitted)
		b.queue = slices.Delete(b.queue, 0, 1)
	}
}

func (b *budget) fits(l load) bool {
	return b.used.messages == 0 || b.limit.covers(b.used.plus(l))
}

// inHand returns the load that was acquired and not released yet.
func (b *budget) inHand() load {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// room returns the rest of the budget.
func (b *budget) room() load { return b.limit.minus(b.inHand()) }

// wait returns nil once the budget has room for the load enough. If ctx ends first, wait returns the error
// of ctx.
func (b *budget) wait(ctx context.Context, enough load) error {
	for {
		b.mu.Lock()
		room := b.limit.minus(b.used)
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		b.mu.Unlock()
		if room.covers(enough) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
