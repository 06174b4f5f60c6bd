package localpubsub

import (
	"cmp"
	"context"
	"slices"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/localpubsub/internal/resource"
)

// Seek sets the acknowledgements of a subscription to their state at a time or in a snapshot
// (https://cloud.google.com/pubsub/docs/replay-overview). For a time, messages published before the
// time count as acknowledged. Messages published at the time or later count as unacknowledged, if
// the subscription or its topic has retained them. For both, outstanding messages are delivered
// again if they count as unacknowledged. Acknowledgements of their old deliveries do not count.
func (s subscriber) Seek(_ context.Context, req *pubsubpb.SeekRequest) (*pubsubpb.SeekResponse, error) {
	found, err := s.subscription(req.GetSubscription())
	if err != nil {
		return nil, err
	}
	switch target := req.GetTarget().(type) {
	case *pubsubpb.SeekRequest_Time:
		if err := target.Time.CheckValid(); err != nil {
			return nil, resource.Invalid("time", "%v", err)
		}
		return &pubsubpb.SeekResponse{}, found.seekTime(target.Time.AsTime())
	case *pubsubpb.SeekRequest_Snapshot:
		from, err := s.snapshot(target.Snapshot)
		if err != nil {
			return nil, err
		}
		if from.describe().GetTopic() != found.describe().GetTopic() {
			return nil, resource.Invalid("snapshot", "%s is of another topic than %s", from.name, found.name)
		}
		return &pubsubpb.SeekResponse{}, found.seekSnapshot(from)
	default:
		return nil, resource.Invalid("target", "a time or a snapshot is needed")
	}
}

func (s *subscription) seekTime(at time.Time) error {
	limit := at.UnixNano()
	return s.seek(
		func(t *topic) []*message { return t.since(limit) },
		func(m *message) bool { return m.at >= limit })
}

func (s *subscription) seekSnapshot(from *snapshot) error {
	var in map[uint64]bool
	return s.seek(
		func(t *topic) (kept []*message) {
			if t == nil || from.topic != t {
				return nil
			}
			kept, in = from.content()
			return kept
		},
		func(m *message) bool { return in[m.id] })
}

// seek replaces the entries of the subscription. It holds the topic's lock, so that no message is
// published during the seek. retained returns the messages that the topic or a snapshot has kept.
// unacked reports whether a message counts as unacknowledged after the seek.
func (s *subscription) seek(retained func(*topic) []*message, unacked func(*message) bool) error {
	s.lock()
	topic := s.topic
	s.unlock()
	var kept []*message
	if topic != nil {
		topic.mu.Lock()
		defer topic.mu.Unlock()
		kept = retained(topic)
	}
	s.lock()
	defer s.unlock()
	if s.gone != nil {
		return s.gone
	}
	s.touch()
	s.replay(kept, unacked)
	s.schedule()
	return nil
}

// since returns the retained messages of the topic whose publish time is limit or later. If t is
// nil, it returns none.
func (t *topic) since(limit int64) (kept []*message) {
	if t == nil {
		return nil
	}
	for i := range t.retained.len() {
		if m := t.retained.at(i); m.at >= limit {
			kept = append(kept, m)
		}
	}
	return kept
}

// replay rebuilds the subscription from its own messages and from kept. kept has the messages that
// its topic or a snapshot has kept. Each message keeps its count of failures.
func (s *subscription) replay(kept []*message, unacked func(*message) bool) {
	old := s.log
	failures := make(map[uint64]int32)
	all := slices.DeleteFunc(kept, func(m *message) bool { return !s.matches(m) })
	for e := old.first; e != nil; e = e.next {
		s.release(e)
		failures[e.id] = e.failures
		all = append(all, e.message)
	}
	s.clear()
	slices.SortFunc(all, func(a, b *message) int { return cmp.Compare(a.id, b.id) })
	for _, m := range slices.CompactFunc(all, func(a, b *message) bool { return a.id == b.id }) {
		switch {
		case unacked(m):
			s.add(m)
			s.log.last.failures = failures[m.id]
		case s.retainAcked:
			m.keep()
			s.log.push(&entry{message: m, timer: -1, state: acked})
		}
	}
	for e := old.first; e != nil; e = e.next {
		e.drop()
	}
	for range s.consumers {
		s.wake()
	}
}

// clear removes all entries. Their leases must have been released.
func (s *subscription) clear() {
	s.log, s.ready, s.readyKeys, s.timers = entryList{}, fifo[*entry]{}, fifo[*keyQueue]{}, nil
	s.keys, s.delivered = make(map[string]*keyQueue), make(map[uint64]*entry)
	for _, c := range s.consumers {
		c.keys = fifo[*keyQueue]{}
	}
}

// matches reports whether the subscription's filter matches a message that the topic or a snapshot
// has kept.
func (s *subscription) matches(m *message) bool {
	if s.filter == nil {
		return true
	}
	decoded, err := m.decode()
	return err == nil && s.filter.Matches(decoded.GetAttributes())
}
