package broker

import (
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/internal/topics"
)

const (
	// ackDeadline is the lease of a message that a unary pull has brought. A stream asks for leases of its own.
	ackDeadline = time.Minute
	// retention is how far back a replay of a subscription can go.
	retention = 7 * 24 * time.Hour
	// deadRetention is the longest possible retention, because dead letters wait for a person.
	deadRetention = 31 * 24 * time.Hour
	// minBackoff and maxBackoff bound the pause between two deliveries of a
	// returned message.
	minBackoff, maxBackoff = time.Second, time.Minute
	// maxAttempts is how many deliveries the dead-letter policy allows. The policy is only a
	// backstop, because consumers write a dead letter themselves after far fewer attempts.
	maxAttempts = 100
)

// Topology returns all topics and subscriptions of the pair, with short names, in an order in which
// they can be created. The topics are those of package topics and their dead-letter topics.
// deploy/terraform creates the same topics and subscriptions. The topics that services publish to
// come last, because the creation of the other topics warms up a starting broker. A topic gets a
// schema if [schemas.Definition] has one for its messages.
//
// Consumers write dead letters themselves. The dead-letter policy is only a backstop, and
// [Provision] leaves it out for brokers that fail on it.
func Topology() (names []string, subscriptions []*pubsubpb.Subscription) {
	for _, topic := range topics.Names() {
		name := topics.Subscription(topic, topics.Catalog)
		dead := topics.DeadLetters(name)
		names = append(names, dead)
		events := subscription(name, topic, retention)
		events.EnableMessageOrdering, events.RetainAckedMessages = true, true
		events.RetryPolicy = &pubsubpb.RetryPolicy{MinimumBackoff: durationpb.New(minBackoff), MaximumBackoff: durationpb.New(maxBackoff)}
		events.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{DeadLetterTopic: dead, MaxDeliveryAttempts: maxAttempts}
		subscriptions = append(subscriptions, subscription(dead, dead, deadRetention), events)
	}
	return append(names, topics.Names()...), subscriptions
}

// fullTopology is Topology with the full names of a project.
func fullTopology(project string) (names []string, subscriptions []*pubsubpb.Subscription) {
	names, subscriptions = Topology()
	for i := range names {
		names[i] = topics.InProject(project, names[i])
	}
	for _, s := range subscriptions {
		s.Name, s.Topic = "projects/"+project+"/subscriptions/"+s.GetName(), topics.InProject(project, s.GetTopic())
		if s.GetDeadLetterPolicy() != nil {
			s.DeadLetterPolicy.DeadLetterTopic = topics.InProject(project, s.GetDeadLetterPolicy().GetDeadLetterTopic())
		}
	}
	return names, subscriptions
}

// subscription returns a subscription that never expires.
func subscription(name, topic string, retention time.Duration) *pubsubpb.Subscription {
	return &pubsubpb.Subscription{
		Name: name, Topic: topic,
		AckDeadlineSeconds:       int32(ackDeadline.Seconds()),
		MessageRetentionDuration: durationpb.New(retention),
		ExpirationPolicy:         &pubsubpb.ExpirationPolicy{},
	}
}
