package inbox

import "time"

const (
	// While several tenants are active a quarter of what waits shares a transaction, between these:
	// a message waits for the transaction in hand and for its own. 100 messages take some 15 ms.
	sharedBatch, leastShared = 100, 8
	// quantum is how many messages of a tenant are taken before it is the next one's turn.
	quantum = 16
	// activeFor is how long a tenant counts as active after a message.
	activeFor = time.Minute
)

// turns are the messages in hand that are in no batch yet. They leave by round robin over
// their tenants, those of one tenant in the order in which they came: a tenant's message
// waits for one quantum of each other tenant, whatever these have in hand. The budget bounds
// them. Only the working goroutine uses them.
type turns struct {
	// lanes are those of the tenants with messages, next has them in their order.
	lanes map[string]*lane
	next  []*lane
	count int
	// last is the tenant of the last message, and changed the last time when it was another
	// one than before.
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
	l := t.lanes[tenant]
	if l == nil {
		l = &lane{tenant: tenant}
		t.lanes[tenant], t.next = l, append(t.next, l)
	}
	l.messages = append(l.messages, d)
}

// batch takes the next batch.
func (t *turns) batch(now time.Time) []*delivery {
	if !t.changed.IsZero() && now.Sub(t.changed) < activeFor {
		return t.take(min(max(t.count/4, leastShared), sharedBatch))
	}
	return t.take(maxBatch)
}

// take takes up to n messages.
func (t *turns) take(n int) []*delivery {
	n = min(n, t.count)
	batch := make([]*delivery, 0, n)
	for len(batch) < n {
		l := t.next[0]
		k := min(quantum, len(l.messages), n-len(batch))
		batch = append(batch, l.messages[:k]...)
		clear(l.messages[:k]) // their memory is the budget's
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
