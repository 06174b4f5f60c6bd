package conformance

import (
	"context"
	"fmt"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// defaultDeadline is the acknowledgement deadline of a subscription in seconds, unless a behaviour
// sets another one. It is longer than any trial.
const defaultDeadline = 600

// name returns a new full name for a resource, such as "projects/P/topics/…".
func (t *trial) name(collection string) string {
	t.names++
	return fmt.Sprintf("projects/%s/%s/%s-%d", t.project, collection, t.id, t.names)
}

func (t *trial) cleanup(undo func(context.Context)) { t.cleanups = append(t.cleanups, undo) }

// topic creates a topic without settings and returns its name.
func (t *trial) topic() string { return t.topicWith(&pubsubpb.Topic{}).GetName() }

// topicWith gives the topic a name and creates it.
func (t *trial) topicWith(topic *pubsubpb.Topic) *pubsubpb.Topic {
	topic.Name = t.name("topics")
	created, err := t.createTopic(topic)
	t.must(err)
	return created
}

func (t *trial) createTopic(topic *pubsubpb.Topic) (*pubsubpb.Topic, error) {
	created, err := t.publisher.CreateTopic(t.ctx, topic)
	if err == nil {
		t.cleanup(func(ctx context.Context) {
			_, _ = t.publisher.DeleteTopic(ctx, &pubsubpb.DeleteTopicRequest{Topic: created.GetName()})
		})
	}
	return created, err
}

func (t *trial) getTopic(name string) *pubsubpb.Topic {
	topic, err := t.publisher.GetTopic(t.ctx, &pubsubpb.GetTopicRequest{Topic: name})
	t.must(err)
	return topic
}

func (t *trial) updateTopic(topic *pubsubpb.Topic, paths ...string) (*pubsubpb.Topic, error) {
	return t.publisher.UpdateTopic(t.ctx, &pubsubpb.UpdateTopicRequest{Topic: topic, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
}

func (t *trial) deleteTopic(name string) {
	_, err := t.publisher.DeleteTopic(t.ctx, &pubsubpb.DeleteTopicRequest{Topic: name})
	t.must(err)
}

// subscription creates a subscription to the topic, without settings, and
// returns its name.
func (t *trial) subscription(topic string) string {
	return t.subscriptionWith(&pubsubpb.Subscription{Topic: topic})
}

// ordered creates a subscription with message ordering and returns its name.
func (t *trial) ordered(topic string) string {
	return t.subscriptionWith(&pubsubpb.Subscription{Topic: topic, EnableMessageOrdering: true})
}

// subscriptionWith creates the subscription s and returns its name. It gives s a name, and a
// deadline if s has none.
func (t *trial) subscriptionWith(s *pubsubpb.Subscription) string {
	s.Name = t.name("subscriptions")
	if s.GetAckDeadlineSeconds() == 0 {
		s.AckDeadlineSeconds = defaultDeadline
	}
	_, err := t.createSubscription(s)
	t.must(err)
	return s.GetName()
}

func (t *trial) createSubscription(s *pubsubpb.Subscription) (*pubsubpb.Subscription, error) {
	created, err := t.subscriber.CreateSubscription(t.ctx, s)
	if err == nil {
		t.cleanup(func(ctx context.Context) {
			_, _ = t.subscriber.DeleteSubscription(ctx, &pubsubpb.DeleteSubscriptionRequest{Subscription: created.GetName()})
		})
	}
	return created, err
}

func (t *trial) getSubscription(name string) *pubsubpb.Subscription {
	s, err := t.subscriber.GetSubscription(t.ctx, &pubsubpb.GetSubscriptionRequest{Subscription: name})
	t.must(err)
	return s
}

func (t *trial) updateSubscription(s *pubsubpb.Subscription, paths ...string) (*pubsubpb.Subscription, error) {
	return t.subscriber.UpdateSubscription(t.ctx,
		&pubsubpb.UpdateSubscriptionRequest{Subscription: s, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
}

func (t *trial) deleteSubscription(name string) {
	_, err := t.subscriber.DeleteSubscription(t.ctx, &pubsubpb.DeleteSubscriptionRequest{Subscription: name})
	t.must(err)
}

// snapshot creates a snapshot of the subscription and returns its name.
func (t *trial) snapshot(subscription string) string {
	s, err := t.createSnapshot(&pubsubpb.CreateSnapshotRequest{Name: t.name("snapshots"), Subscription: subscription})
	t.must(err)
	return s.GetName()
}

func (t *trial) createSnapshot(r *pubsubpb.CreateSnapshotRequest) (*pubsubpb.Snapshot, error) {
	s, err := t.subscriber.CreateSnapshot(t.ctx, r)
	if err == nil {
		t.cleanup(func(ctx context.Context) {
			_, _ = t.subscriber.DeleteSnapshot(ctx, &pubsubpb.DeleteSnapshotRequest{Snapshot: s.GetName()})
		})
	}
	return s, err
}
