package localpubsub

import (
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

// deadLetter sends the entry to the dead letter topic if the entry has used all its delivery
// attempts. It reports whether it did so. Later messages of the entry's key are then delivered
// without the entry. If the dead letter topic is missing, the subscription keeps the entry and
// delivers it again, as documented.
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
	s.after(func() {
		// The topic accepts the message even if the topic was deleted after the check above. A
		// deleted topic has no subscriptions, so no subscriber can tell the difference.
		_, _ = to.publish([]*pubsubpb.PubsubMessage{dead})
	})
	s.release(e)
	delete(s.delivered, e.id)
	if q := e.queue; q != nil {
		q.remove(e)
		s.trim(q)
		s.offer(q)
	}
	e.state = acked
	s.retire(e)
	return true
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
