package localpubsub

import (
	"cmp"
	"slices"
)

// A backlog holds the messages that a topic or a subscription keeps, oldest
// first.
type backlog struct{ items []backlogItem }

type backlogItem struct {
	*message // nil: not kept any more

	id    uint64
	acked bool
}

func (b *backlog) push(messages ...*message) {
	for _, m := range messages {
		b.items = append(b.items, backlogItem{message: m, id: m.id})
	}
}

// sort restores the order of publishing.
func (b *backlog) sort() {
	slices.SortFunc(b.items, func(a, b backlogItem) int { return cmp.Compare(a.id, b.id) })
}

func (b *backlog) acknowledge(ids []uint64, retain bool) {
	for _, id := range ids {
		i, found := slices.BinarySearchFunc(b.items, id, func(k backlogItem, id uint64) int { return cmp.Compare(k.id, id) })
		if !found {
			continue
		}
		b.items[i].acked = true
		if !retain {
			b.items[i].message = nil
		}
	}
}

// forget drops the messages that were published up to a time.
func (b *backlog) forget(until int64) {
	for len(b.items) > 0 && (b.items[0].message == nil || b.items[0].at <= until) {
		b.items = b.items[1:]
	}
}
