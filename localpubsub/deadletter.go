package localpubsub

import (
	"strconv"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/localpubsub/internal/resource"
)

// The attributes of a dead letter, in addition to those of the message itself
// (https://cloud.google.com/pubsub/docs/handling-failures).
const (
	deadLetterCount        = "CloudPubSubDeadLetterSourceDeliveryCount"
	deadLetterSubscription = "CloudPubSubDeadLetterSourceSubscription"
	deadLetterProject      = "CloudPubSubDeadLetterSourceSubscriptionProject"
	deadLetterPublishTime  = "CloudPubSubDeadLetterSourceTopicPublishTime"
)

// buried sends the entry to the dead letter topic if this failure was its last
// allowed one. The later messages of its key are then delivered without it. If
// the dead letter topic is missing, the message stays and is delivered again,
// as documented.
func (s *subscription) buried(e *entry) bool {
	if s.maxAttempts == 0 || e.failures < s.maxAttempts {
		return false
	}
	to := s.server.topic(s.config.GetDeadLetterPolicy().GetDeadLetterTopic())
	if to == nil {
		return false
	}
	letter, err := s.letter(e)
	if err != nil {
		return false
	}
	s.after(func() {
		// The topic accepts the message, or was deleted meanwhile; then no
		// subscriber can tell the difference.
		_, _ = to.publish([]*pubsubpb.PubsubMessage{letter})
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

func (s *subscription) letter(e *entry) (*pubsubpb.PubsubMessage, error) {
	letter, err := e.decode()
	if err != nil {
		return nil, err
	}
	if letter.Attributes == nil {
		letter.Attributes = make(map[string]string)
	}
	project, id := resource.Split(s.name)
	letter.Attributes[deadLetterCount] = strconv.Itoa(int(e.failures))
	letter.Attributes[deadLetterSubscription] = id
	letter.Attributes[deadLetterProject] = project
	letter.Attributes[deadLetterPublishTime] = letter.GetPublishTime().AsTime().Format(time.RFC3339Nano)
	return letter, nil
}
