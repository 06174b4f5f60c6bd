package conformance

import (
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
)

func leases() area {
	source := page("lease-management")
	return area{"leases", []Behaviour{
		{Name: "an unacknowledged message comes again after its deadline, not before", Source: source, try: leaseEnds},
		{Name: "a stream's deadline holds for the messages on it", Source: rpc("StreamingPullRequest"), try: leaseOfStream},
		{Name: "a dead stream's messages come again after their deadline, not before", Source: source, try: leaseOutlivesStream},
		{Name: "an extended deadline counts from the extension", Source: rpc("ModifyAckDeadlineRequest"), try: leaseIsExtended},
		{Name: "a deadline can be shortened", Source: rpc("ModifyAckDeadlineRequest"), try: leaseIsShortened},
		{Name: "a deadline of zero makes the message come again at once", Source: rpc("ModifyAckDeadlineRequest"), try: leaseIsReturned},
		{Name: "a deadline is set to 600 seconds at most and not below zero", Source: rpc("ModifyAckDeadlineRequest"), try: leaseIsLimited},
		{Name: "an acknowledged message does not come again", Source: rpc("Subscriber.Acknowledge"), try: ackIsKept},
		{Name: "a lease that runs out concerns no other message", Source: source, try: leaseIsOneMessages},
		{Name: "an acknowledgement twice or too late is no error", Source: rpc("Subscriber.Acknowledge"), try: lateAckIsNoError},
		{Name: "an acknowledgement without ids is refused", Source: rpc("AcknowledgeRequest"), try: ackNeedsIDs},
		{Name: "an acknowledgement concerns its own subscription", Source: page("subscription-overview"), try: ackIsOneSubscriptions},
	}}
}

func leaseEnds(t *trial) {
	topic := t.topic()
	subscription := t.subscriptionWith(&pubsubpb.Subscription{Topic: topic, AckDeadlineSeconds: 10})
	t.publish(topic, text("a"))
	asked := time.Now()
	t.pull(subscription, 1)
	t.notBefore(t.pull(subscription, 1)[0].at, asked, 10*time.Second)
}

func leaseOfStream(t *trial) {
	topic := t.topic()
	s := t.open(&pubsubpb.StreamingPullRequest{Subscription: t.subscription(topic), StreamAckDeadlineSeconds: 10})
	t.publish(topic, text("a"))
	s.want("a")
	t.notBefore(s.one().at, s.opened, 10*time.Second)
}

func leaseOutlivesStream(t *trial) {
	topic := t.topic()
	subscription := t.subscription(topic)
	t.publish(topic, texts("", "a", "b", "c")...)
	dead := t.open(&pubsubpb.StreamingPullRequest{Subscription: subscription, StreamAckDeadlineSeconds: 10})
	dead.next(3)
	dead.abort()
	for _, d := range t.stream(subscription).wantSet("a", "b", "c") {
		t.notBefore(d.at, dead.opened, 10*time.Second)
	}
}

func leaseIsExtended(t *trial) {
	topic := t.topic()
	s := t.open(&pubsubpb.StreamingPullRequest{Subscription: t.subscription(topic), StreamAckDeadlineSeconds: 10})
	t.publish(topic, text("a"))
	a := s.one()
	s.quiet(silence)
	asked := time.Now()
	t.extend(s.subscription, 11, a)
	t.notBefore(s.one().at, asked, 11*time.Second)
}

func leaseIsShortened(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	t.publish(topic, text("a"))
	a := s.one()
	asked := time.Now()
	t.extend(s.subscription, 4, a)
	t.notBefore(s.one().at, asked, 4*time.Second)
}

func leaseIsReturned(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	t.publish(topic, text("a"))
	for range 3 {
		s.nack(s.one()) // only a nack brings it back: its lease outlasts the trial
	}
	s.want("a")
}

func leaseIsLimited(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	t.publish(topic, text("a"))
	id := s.one().GetAckId()
	t.code("deadline of 600 s", t.tryExtend(s.subscription, 600, id), codes.OK)
	t.code("deadline of 601 s", t.tryExtend(s.subscription, 601, id), codes.InvalidArgument)
	t.code("deadline of -1 s", t.tryExtend(s.subscription, -1, id), codes.InvalidArgument)
}

func ackIsKept(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	t.publish(topic, text("a"))
	s.ackInTime(s.one())
	s.quiet(ackTime)
}

func leaseIsOneMessages(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	t.publish(topic, texts("", "a", "b", "c")...)
	first := s.next(3)[0]
	s.expire(first)
	s.want(first.data())
	s.quiet(silence)
}

func lateAckIsNoError(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	t.publish(topic, texts("", "a", "b")...)
	both := s.next(2)
	t.code("acknowledgement", t.tryAck(s.subscription, both[0].GetAckId()), codes.OK)
	t.code("second acknowledgement", t.tryAck(s.subscription, both[0].GetAckId()), codes.OK)
	s.expire(both[1])
	s.want(both[1].data())
	t.code("late acknowledgement", t.tryAck(s.subscription, both[1].GetAckId()), codes.OK)
	t.code("late extension", t.tryExtend(s.subscription, 20, both[0].GetAckId()), codes.OK)
}

func ackNeedsIDs(t *trial) {
	subscription := t.subscription(t.topic())
	t.code("acknowledgement", t.tryAck(subscription), codes.InvalidArgument)
	t.code("extension", t.tryExtend(subscription, 20), codes.InvalidArgument)
}

func ackIsOneSubscriptions(t *trial) {
	topic := t.topic()
	one, two := t.stream(t.subscription(topic)), t.stream(t.subscription(topic))
	t.publish(topic, text("a"))
	a, other := one.one(), two.one()
	one.ack(a)
	two.nack(other)
	two.want("a")
	one.quiet(silence)
}
