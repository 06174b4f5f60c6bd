package localpubsub

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/localpubsub/internal/resource"
)

// A dead letter has these attributes in addition to the attributes of the original message
// (https://cloud.google.com/pubsub/docs/handling-failures).
const (
	deadLetterCount        = "CloudPubSubDeadLetterSourceDeliveryCount"
	deadLetterSubscription = "CloudPubSubDeadLetterSourceSubscription"
	deadLetterProject      = "CloudPubSubDeadLetterSourceSubscriptionProject"
	deadLetterPublishTime  = "CloudPubSubDeadLetterSourceTopicPublishTime"
)

// deadLetter sends the entry to the dead letter topic if the entry has used all its delivery attempts.
// It reports whether it did so. Later messages of the entry's key are then delivered without the entry.
// If the dead letter topic is missing, the subscription keeps the entry and delivers it again, as
// documented.
//
// A seek can bring the entry back, if the subscription keeps acknowledged messages. Google's pages do
// not say from which number the entry's attempts are counted then. Here they are counted from 1, so the
// entry has max_delivery_attempts again. A message that comes back from a snapshot or the topic is
// counted from 1, too.
func (s *subscription) deadLetter(e *entry) bool {
	if s.maxAttempts == 0 || e.failures < s.maxAttempts {
		return false
	}
	to, err := s.server.topic(s.config.GetDeadLetterPolicy().GetDeadLetterTopic())
	if err != nil {
		return false
	}
	dead, err := s.deadLetterMessage(e)
	if err != nil {
		return false
	}
	s.dead = append(s.dead, deadLetter{id: e.id, to: to, message: dead})
	s.after(s.forward)
	s.release(e)
	delete(s.delivered, e.id)
	if q := e.queue; q != nil {
		q.remove(e)
		s.trim(q)
		s.offer(q)
	}
	e.state, e.failures = acked, 0
	s.retire(e)
	return true
}

// A deadLetter is a message on its way to the dead letter topic. It is published after the lock of its
// subscription is released, because the lock of a topic must be taken first.
type deadLetter struct {
	id      uint64 // of the original message
	to      *topic
	message *pubsubpb.PubsubMessage
}

// forward publishes the dead letters, in the order of the original messages. One call at a time does so.
// Otherwise the dead letters of one key would change their order if two requests nack them.
func (s *subscription) forward() {
	s.forwarding.Lock()
	defer s.forwarding.Unlock()
	s.lock()
	dead := s.dead
	s.dead = nil
	s.unlock()
	slices.SortFunc(dead, func(a, b deadLetter) int { return cmp.Compare(a.id, b.id) })
	for _, d := range dead {
		// The topic accepts the message even if the topic was deleted meanwhile. A deleted topic has no
		// subscriptions, so no subscriber can tell the difference.
		_, _ = d.to.publish([]*pubsubpb.PubsubMessage{d.message})
	}
}

func (s *subscription) deadLetterMessage(e *entry) (*pubsubpb.PubsubMessage, error) {
	dead, err := e.decode()
	if err != nil {
		return nil, err
	}
	if dead.Attributes == nil {
		dead.Attributes = make(map[string]string)
	}
	project, id := resource.Split(s.name)
	dead.Attributes[deadLetterCount] = strconv.Itoa(int(e.failures))
	dead.Attributes[deadLetterSubscription] = id
	dead.Attributes[deadLetterProject] = project
	dead.Attributes[deadLetterPublishTime] = dead.GetPublishTime().AsTime().Format(time.RFC3339Nano)
	return dead, nil
}
