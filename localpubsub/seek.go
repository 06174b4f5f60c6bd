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
// again if they count as unacknowledged. Acknowledgements of their old deliveries do not count. A
// message of a snapshot that is past the retention of the subscription and of its topic is not
// delivered.
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
		return &pubsubpb.SeekResponse{}, found.seekSnapshot(from)
	default:
		return nil, resource.Invalid("target", "a time or a snapshot is needed")
	}
}

func (s *subscription) seekTime(at time.Time) error {
	return s.seek(
		func(t *topic) ([]*message, error) { return t.since(at), nil },
		func(m *message) bool { return m.since(at) })
}

// seekSnapshot returns FAILED_PRECONDITION if the snapshot is not of the subscription's topic, or if
// the topic was deleted.
func (s *subscription) seekSnapshot(from *snapshot) error {
	var in map[uint64]bool
	return s.seek(
		func(t *topic) (kept []*message, err error) {
			kept, in, err = from.content(t)
			return kept, err
		},
		func(m *message) bool { return in[m.id] })
}

// seek replaces the entries of the subscription. It holds the topic's lock, so that no message is
// published during the seek. retained returns the messages that the topic or a snapshot has kept.
// It is called with nil if the topic was deleted, and if it returns an error, seek changes nothing.
// unacked reports whether a message counts as unacknowledged after the seek.
func (s *subscription) seek(retained func(*topic) ([]*message, error), unacked func(*message) bool) error {
	s.lock()
	topic := s.topic
	s.unlock()
	if topic != nil {
		topic.mu.Lock()
		defer topic.mu.Unlock()
	}
	kept, err := retained(topic)
	if err != nil {
		return err
	}
	s.lock()
	defer s.unlock()
	if s.gone != nil {
		return s.gone
	}
	s.touch()
	s.replay(kept, unacked)
	s.retain() // a snapshot may have kept messages for longer
	return nil
}

// since returns the retained messages of the topic that were published at the time or later. If t is
// nil, it returns none.
func (t *topic) since(at time.Time) (kept []*message) {
	if t == nil {
		return nil
	}
	for i := range t.retained.len() {
		if m := t.retained.at(i); m.since(at) {
			kept = append(kept, m)
		}
	}
	return kept
}

// since reports whether the message was published at the time or later. It compares times, because
// nanoseconds since 1970 are not defined for all times that a request may have.
func (m *message) since(at time.Time) bool { return !time.Unix(0, m.at).Before(at) }

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
			s.log.push(&entry{message: m, timer: -1, state: acked, failures: failures[m.id]})
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
