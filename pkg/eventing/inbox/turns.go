package inbox

import (
	"slices"
	"time"
)

const (
	// While several tenants are active, a batch has a quarter of the waiting messages, but at least
	// leastShared and at most sharedBatch. The batch is small, because a message waits for the
	// running transaction and then for its own transaction. A transaction with 100 messages takes
	// some 15 ms.
	sharedBatch, leastShared = 100, 8
	// quantum is how many messages of a tenant are taken at most before the next tenant's turn.
	quantum = 16
	// activeFor is how long several tenants count as active after a message came from another
	// tenant than the message before.
	activeFor = time.Minute
)

// turns has the messages in hand that are in no batch yet. They leave by round robin over their
// tenants, and the messages of one tenant leave in the order in which they came. Each tenant has a
// part in the next batch, unless there are more tenants than a batch has messages. So a tenant's
// next message waits only for the running batch, however many messages the other tenants have in
// hand. The budget bounds the number of messages. Only the worker goroutine uses turns.
type turns struct {
	// lanes has the tenants with messages. next has the same lanes in the order of their turns.
	lanes map[string]*lane
	next  []*lane
	count int
	// last is the tenant of the last message. changed is the last time when a message came from
	// another tenant than the message before.
	last    string
	changed time.Time
}

type lane struct {
	tenant   string
	messages []*delivery
}

func (t *turns) push(d *delivery, now time.Time) {
	tenant := d.event().Tenant()
	if t.last != tenant && t.last != "" {
		t.changed = now
	}
	t.last = tenant
	t.count++
	l := t.lane(tenant)
	l.messages = append(l.messages, d)
}

// lane returns a tenant's lane, at the end of the order if it is new. The caller adds a message.
func (t *turns) lane(tenant string) *lane {
	l := t.lanes[tenant]
	if l == nil {
		l = &lane{tenant: tenant}
		t.lanes[tenant], t.next = l, append(t.next, l)
	}
	return l
}

// shared reports whether several tenants are active.
func (t *turns) shared(now time.Time) bool {
	return !t.changed.IsZero() && now.Sub(t.changed) < activeFor
}

// batch takes the next batch.
func (t *turns) batch(now time.Time) []*delivery {
	if t.shared(now) {
		return t.take(min(max(t.count/4, leastShared), sharedBatch))
	}
	return t.take(maxBatch)
}

// first returns the first batch of unblocked, the deliveries of an aggregate that was unblocked. The
// batch has no messages of other aggregates, because its first event has failed before. The rest
// takes its turns, before the later messages of its tenant.
func (t *turns) first(unblocked []*delivery, now time.Time) []*delivery {
	n := maxBatch
	if t.shared(now) {
		n = sharedBatch
	}
	// If the lock of an event that was put off is still there, the halves of a batch would wait for
	// it once more each. If an event has broken its connection, the halves would do so again, and each
	// time the server may end all sessions. So the batch ends with that event. It need not be the first
	// one, because an earlier event may have been delivered again meanwhile.
	if i := slices.IndexFunc(unblocked, (*delivery).endsBatch); i >= 0 {
		n = min(n, i+1)
	}
	if n >= len(unblocked) {
		return unblocked
	}
	l, rest := t.lane(unblocked[0].event().Tenant()), unblocked[n:]
	l.messages = slices.Concat(rest, l.messages)
	t.count += len(rest)
	return unblocked[:n]
}

// take takes up to n messages.
func (t *turns) take(n int) []*delivery {
	n = min(n, t.count)
	batch := make([]*delivery, 0, n)
	turn := max(1, min(quantum, n/max(1, len(t.next))))
	for len(batch) < n {
		l := t.next[0]
		k := min(turn, len(l.messages), n-len(batch))
		batch = append(batch, l.messages[:k]...)
		clear(l.messages[:k]) // keeps no message in memory that the budget has released
		l.messages = l.messages[k:]
		t.next = t.next[1:]
		if len(l.messages) > 0 {
			t.next = append(t.next, l)
		} else {
			delete(t.lanes, l.tenant)
		}
	}
	t.count -= n
	return batch
}
