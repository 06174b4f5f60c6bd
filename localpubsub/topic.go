package localpubsub

import (
	"slices"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/localpubsub/internal/resource"
)

// A topic gives each message its id, time and place in the order. It passes the message to its
// subscriptions and snapshots. If a goroutine takes the lock of a topic and of one of its
// subscriptions or snapshots, it must take the topic's lock first.
type topic struct {
	server *Server
	name   string

	mu            sync.Mutex
	config        *pubsubpb.Topic // replaced as a whole, never changed
	subscriptions []*subscription
	snapshots     []*snapshot
	retained      fifo[*message] // kept for seeks as long as the topic's own retention
	last          int64          // latest publish time, ns since 1970
	alarm         *alarm
	ended         bool // the topic was deleted
}

func newTopic(server *Server, config *pubsubpb.Topic) *topic {
	t := &topic{server: server, name: config.GetName(), config: config}
	t.alarm = server.clock.newAlarm(t.forgetOld)
	return t
}

// publish accepts all messages of one request, or none. It returns the ids of the messages. The
// caller must have checked the messages.
func (t *topic) publish(messages []*pubsubpb.PubsubMessage) ([]string, error) {
	accepted := make([]*message, len(messages))
	for i, m := range messages {
		raw, err := encode(m)
		if err != nil {
			return nil, resource.Invalid("messages", "message %d: %v", i, err)
		}
		accepted[i] = &message{key: m.GetOrderingKey(), raw: raw, in: &t.server.store}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	ids := make([]string, len(accepted))
	t.last = max(t.last, t.server.now().UnixNano())
	for i, m := range accepted {
		m.id, m.at = t.server.nextMessage(), t.last
		m.raw = stamp(m.raw, m.id, m.at)
		ids[i] = messageID(m.id)
	}
	t.deliver(accepted, messages)
	return ids, nil
}

// deliver passes accepted messages to the snapshots and subscriptions. sent has the same messages
// as the publisher sent them, with their attributes.
func (t *topic) deliver(accepted []*message, sent []*pubsubpb.PubsubMessage) {
	if t.retention() > 0 {
		for _, m := range accepted {
			m.keep()
			t.retained.push(m)
		}
		t.schedule()
	}
	for _, s := range t.snapshots {
		s.add(accepted)
	}
	for _, s := range t.subscriptions {
		s.lock()
		for i, m := range accepted {
			if s.gone == nil && s.filter.Matches(sent[i].GetAttributes()) {
				s.add(m)
			}
		}
		s.schedule()
		s.wake()
		s.unlock()
	}
}

func (t *topic) retention() time.Duration { return t.config.GetMessageRetentionDuration().AsDuration() }

// forgetOld drops messages past the topic's retention.
func (t *topic) forgetOld() {
	t.mu.Lock()
	defer t.mu.Unlock()
	limit := t.server.now().Add(-t.retention()).UnixNano()
	for t.retained.len() > 0 && t.retained.at(0).at <= limit {
		t.retained.pop().drop()
	}
	t.schedule()
}

func (t *topic) schedule() {
	if t.retained.len() > 0 {
		t.alarm.set(time.Unix(0, t.retained.at(0).at).Add(t.retention()))
	}
}

// attach adds a new subscription to the server and to the topic. It returns an error if the topic was
// deleted meanwhile, or if the name of the subscription is taken. It holds the topic's lock, so that
// a call that deletes the subscription or the topic waits until the subscription is in both places.
func (t *topic) attach(s *subscription) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return resource.Missing(t.name)
	}
	if err := t.server.subscriptions.put(s.name, s); err != nil {
		return err
	}
	t.subscriptions = append(t.subscriptions, s)
	s.setTopicRetention(t.retention())
	return nil
}

func (t *topic) detach(s *subscription) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subscriptions = slices.DeleteFunc(t.subscriptions, func(other *subscription) bool { return other == s })
}

// setTopicRetention applies the topic's retention to the subscription.
func (s *subscription) setTopicRetention(retention time.Duration) {
	s.lock()
	defer s.unlock()
	s.topicRetention = retention
	s.retain()
}

// end detaches the topic from its subscriptions and snapshots, and drops the topic's retained
// messages. The subscriptions keep their messages.
func (t *topic) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.alarm.stop()
	for t.retained.len() > 0 {
		t.retained.pop().drop()
	}
	for _, s := range t.subscriptions {
		s.lock()
		s.topic, s.topicRetention = nil, 0
		s.retain()
		s.unlock()
	}
	for _, s := range t.snapshots {
		s.loseTopic()
	}
	t.subscriptions, t.snapshots = nil, nil
}
