package conformance

import (
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
)

func deadLetters() area {
	source := page("dead-letter-topics")
	policy := rpc("DeadLetterPolicy")
	return area{"dead letters", []Behaviour{
		{Name: "after its last attempt a message goes to the dead letter topic and comes no more", Source: source, try: deadLetterIsForwarded},
		{Name: "exactly one copy goes to the dead letter topic", Source: source, try: deadLetterIsOneCopy},
		{Name: "a dead letter keeps its data, attributes and key, and names its source", Source: source, try: deadLetterIsLabelled},
		{Name: "under a dead letter policy deliveries are counted from 1", Source: rpc("ReceivedMessage"), try: attemptsAreCounted},
		{Name: "an expired lease counts as an attempt", Source: policy, try: expiryCounts},
		{Name: "without a dead letter policy no attempt is reported", Source: rpc("ReceivedMessage"), try: attemptsAreOmitted},
		{Name: "attempts are counted per subscription", Source: policy, try: attemptsAreOneSubscriptions},
		{Name: "an acknowledged message is no dead letter", Source: source, try: acknowledgedIsNoDeadLetter},
		{Name: "dead letters work on an ordered subscription, and the key goes on", Source: source, try: deadLetterIsOrdered},
		{Name: "the number of attempts is between 5 and 100", Source: policy, try: attemptsAreLimited},
		{Name: "the number of attempts is 5 where none is given", Source: policy, try: attemptsDefault},
		{Name: "a dead letter policy with a missing topic is refused", Source: policy, try: deadLetterNeedsTopic},
	}}
}

// attempts is the number of deliveries after which a message becomes a dead letter. It is the
// smallest number that can be configured.
const attempts = 5

// deadLetterSetup has two streams. One is of a subscription with a dead letter policy. The other is
// of a subscription to the dead letter topic.
type deadLetterSetup struct {
	topic string
	*stream

	dead *stream
}

func (t *trial) deadLetterSetup(ordered bool) *deadLetterSetup {
	topic, dead := t.topic(), t.topic()
	deadLetters := t.stream(t.subscription(dead))
	return &deadLetterSetup{topic: topic, dead: deadLetters, stream: t.stream(t.subscriptionWith(&pubsubpb.Subscription{
		Topic: topic, EnableMessageOrdering: ordered,
		DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: dead, MaxDeliveryAttempts: attempts},
	}))}
}

// exhaust nacks the message until it has no delivery attempts left.
func (g *deadLetterSetup) exhaust() {
	for range attempts {
		g.nack(g.one())
	}
}

func deadLetterIsForwarded(t *trial) {
	g := t.deadLetterSetup(false)
	t.publish(g.topic, text("a"))
	g.exhaust()
	g.dead.want("a")
	g.quiet(silence)
}

func deadLetterIsOneCopy(t *trial) {
	g := t.deadLetterSetup(false)
	t.publish(g.topic, text("a"))
	g.exhaust()
	g.dead.ack(g.dead.want("a")...)
	g.dead.quiet(silence)
}

func deadLetterIsLabelled(t *trial) {
	g := t.deadLetterSetup(false)
	message := attributed("a", "kind", "b")
	message.OrderingKey = "key"
	t.publish(g.topic, message)
	g.exhaust()
	got := g.dead.want("a")[0].GetMessage()
	equal(t, "ordering key", got.GetOrderingKey(), "key")
	const prefix = "CloudPubSubDeadLetterSource"
	for name, want := range map[string]string{
		"kind":                         "b",
		prefix + "DeliveryCount":       fmt.Sprint(attempts),
		prefix + "Subscription":        g.subscription[strings.LastIndexByte(g.subscription, '/')+1:],
		prefix + "SubscriptionProject": t.project,
	} {
		equal(t, "attribute "+name, got.GetAttributes()[name], want)
	}
	published, err := time.Parse(time.RFC3339Nano, got.GetAttributes()[prefix+"TopicPublishTime"])
	t.checkf(err == nil, "the publish time is not one: %v", err)
	t.checkf(time.Since(published).Abs() < time.Minute, "the publish time is %v", published)
}

func attemptsAreCounted(t *trial) {
	g := t.deadLetterSetup(false)
	t.publish(g.topic, text("a"))
	for want := range int32(attempts) {
		d := g.one()
		equal(t, "attempt", d.GetDeliveryAttempt(), want+1)
		g.nack(d)
	}
}

func expiryCounts(t *trial) {
	g := t.deadLetterSetup(false)
	t.publish(g.topic, text("a"))
	for range 2 {
		g.expire(g.one())
	}
	d := g.one()
	equal(t, "attempt after two expired leases", d.GetDeliveryAttempt(), 3)
	g.nack(d)
	g.expire(g.one())
	g.expire(g.one())
	g.dead.want("a")
}

func attemptsAreOmitted(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	t.publish(topic, text("a"))
	s.nack(s.one())
	equal(t, "attempt", s.one().GetDeliveryAttempt(), 0)
}

func attemptsAreOneSubscriptions(t *trial) {
	g := t.deadLetterSetup(false)
	other := t.stream(t.subscriptionWith(&pubsubpb.Subscription{Topic: g.topic, DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{
		DeadLetterTopic: t.topic(), MaxDeliveryAttempts: attempts,
	}}))
	t.publish(g.topic, text("a"))
	first := other.one()
	g.nack(g.one())
	g.nack(g.one())
	g.one()
	equal(t, "the other's first attempt", first.GetDeliveryAttempt(), 1)
	other.nack(first)
	equal(t, "the other's second attempt", other.one().GetDeliveryAttempt(), 2)
}

func acknowledgedIsNoDeadLetter(t *trial) {
	g := t.deadLetterSetup(false)
	t.publish(g.topic, text("a"))
	for range attempts - 1 {
		g.nack(g.one())
	}
	g.ackInTime(g.one())
	g.dead.quiet(ackTime)
	g.quiet(silence)
}

func deadLetterIsOrdered(t *trial) {
	g := t.deadLetterSetup(true)
	t.publish(g.topic, texts("key", "a")...)
	g.exhaust()
	equal(t, "key of the dead letter", g.dead.want("a")[0].GetMessage().GetOrderingKey(), "key")
	t.publish(g.topic, texts("key", "b", "c")...)
	g.ack(g.want("b", "c")...)
	g.quiet(silence)
}

func attemptsAreLimited(t *trial) {
	topic, dead := t.topic(), t.topic()
	create := func(n int32) error {
		_, err := t.createSubscription(&pubsubpb.Subscription{
			Name: t.name("subscriptions"), Topic: topic,
			DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: dead, MaxDeliveryAttempts: n},
		})
		return err
	}
	t.refused("4 attempts", create(4))
	t.code("5 attempts", create(5), codes.OK)
	t.code("100 attempts", create(100), codes.OK)
	t.refused("101 attempts", create(101))
}

func attemptsDefault(t *trial) {
	got := t.getSubscription(t.subscriptionWith(&pubsubpb.Subscription{
		Topic: t.topic(), DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: t.topic()},
	}))
	equal(t, "attempts", got.GetDeadLetterPolicy().GetMaxDeliveryAttempts(), attempts)
}

func deadLetterNeedsTopic(t *trial) {
	_, err := t.createSubscription(&pubsubpb.Subscription{
		Name: t.name("subscriptions"), Topic: t.topic(),
		DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: t.name("topics"), MaxDeliveryAttempts: attempts},
	})
	t.code("creation", err, codes.NotFound)
}
