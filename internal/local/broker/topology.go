package broker

import (
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/internal/topics"
)

const (
	// ackDeadline is the time for which a message of a crashed consumer stays
	// hidden.
	ackDeadline = time.Minute
	// retention is the period that a replay of a subscription can go back.
	retention = 7 * 24 * time.Hour
	// deadRetention is the longest possible retention: a person has to look at
	// dead letters.
	deadRetention = 31 * 24 * time.Hour
	// minBackoff and maxBackoff bound the pause between two deliveries of a
	// returned message.
	minBackoff, maxBackoff = time.Second, time.Minute
	// maxAttempts is a backstop, far above the attempts after which consumers
	// write a dead letter themselves.
	maxAttempts = 100
)

// Topology returns all topics and subscriptions of the pair, those of package topics, in an order in
// which they can be created. The topics that services publish to come last: by
// then, the creation of the others has warmed up a starting broker. Names are
// short. A topic gets a schema if [schemas.Definition] has one for its
// messages.
//
// They are those of deploy/terraform. Consumers write
// dead letters themselves; the policy is a backstop, and [Provision] leaves it
// out for brokers that fail on it.
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
