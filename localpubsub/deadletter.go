package localpubsub

import (
	"strconv"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/localpubsub/internal/resource"
)

// The attributes that a dead letter has in addition to the attributes of the
// message itself (https://cloud.google.com/pubsub/docs/handling-failures).
const (
	deadLetterCount        = "CloudPubSubDeadLetterSourceDeliveryCount"
	deadLetterSubscription = "CloudPubSubDeadLetterSourceSubscription"
	deadLetterProject      = "CloudPubSubDeadLetterSourceSubscriptionProject"
	deadLetterPublishTime  = "CloudPubSubDeadLetterSourceTopicPublishTime"
)

// deadLetter sends the entry to the dead letter topic if this failure was its
// last allowed one, and reports whether it did. After that, the later messages
// of the entry's key are delivered without it. If the dead letter topic is
// missing, the message stays and is delivered again, as documented.
func (s *subscription) deadLetter(e *entry) bool {
	if s.maxAttempts == 0 || e.failures < s.maxAttempts {
		return false
	}
	to := s.server.topic(s.config.GetDeadLetterPolicy().GetDeadLetterTopic())
	if to == nil {
		return false
	}
	dead, err := s.deadLetterMessage(e)
	if err != nil {
		return false
	}
	s.after(func() {
		// The topic accepts the message even if it was deleted after the check
		// above. It has no subscription then, so no subscriber can tell the
		// difference.
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
