package localpubsub

import "container/heap"

// An entry is one message in one subscription.
//
//	publish          take            ack
//	   │              │               │
//	   ▼              ▼               ▼
//	ready ────────▶ leased ────────▶ acked ── kept on for a seek, or gone
//	   ▲              │ nack,
//	   │              │ deadline
//	   └── waiting ◀──┘
//	       (backoff)
type entry struct {
	*message            // nil after the entry has left the subscription
	prev, next   *entry // in the subscription, in publish order
	kprev, knext *entry // in its key's queue, in publish order
	queue        *keyQueue
	consumer     *consumer // that has leased the message
	serial       uint64    // of the last delivery; part of the ack id
	deadline     int64     // of the lease or of the backoff, ns
	timer        int       // index in the subscription's timers; -1 if it is not there
	failures     int32     // nacks and missed deadlines
	state        state
}

type state uint8

const (
	ready state = iota
	leased
	waiting
	acked
)

// entryList links the entries of a subscription in publish order.
type entryList struct {
	first, last *entry
}

func (l *entryList) push(e *entry) {
	e.prev = l.last
	if l.last == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last = e
}

func (l *entryList) remove(e *entry) {
	if e.prev == nil {
		l.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
}

// timers is a heap of the leased and waiting entries, the earliest deadline
// first.
type timers []*entry

func (t *timers) set(e *entry, deadline int64) {
	e.deadline = deadline
	if e.timer < 0 {
		heap.Push(t, e)
	} else {
		heap.Fix(t, e.timer)
	}
}

func (t *timers) clear(e *entry) {
	if e.timer >= 0 {
		heap.Remove(t, e.timer)
	}
}

// due removes and returns the entry with the earliest deadline, if this deadline is not after now.
// Otherwise it returns nil.
func (t *timers) due(now int64) *entry {
	if len(*t) == 0 || (*t)[0].deadline > now {
		return nil
	}
	return heap.Pop(t).(*entry)
}

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].deadline < t[j].deadline }

func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].timer, t[j].timer = i, j
}

// Push and Pop are for container/heap.
func (t *timers) Push(x any) {
	e := x.(*entry)
	e.timer = len(*t)
	*t = append(*t, e)
}

// Pop removes the last entry.
func (t *timers) Pop() any {
	last := len(*t) - 1
	e := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	e.timer = -1
	return e
}
