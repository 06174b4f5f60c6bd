package localpubsub

import (
	"context"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"example.com/lockstep/localpubsub/internal/filter"
	"example.com/lockstep/localpubsub/internal/resource"
)

// deletedTopic replaces the name of a deleted topic in its subscriptions and snapshots.
const deletedTopic = "_deleted-topic_"

// subscriber serves google.pubsub.v1.Subscriber.
type subscriber struct {
	pubsubpb.UnimplementedSubscriberServer

	*Server
}

// CreateSubscription creates a subscription. The subscription gets the messages that are published
// from now on. It gets older messages that the topic has retained only after a seek. If the request
// has no name, the subscription gets a random name in the project of its topic.
func (s subscriber) CreateSubscription(_ context.Context, req *pubsubpb.Subscription) (*pubsubpb.Subscription, error) {
	config := proto.CloneOf(req)
	topic, err := s.topic(config.GetTopic())
	if err != nil {
		return nil, err
	}
	if config.GetName() == "" {
		config.Name = resource.RandomName(topic.name, "subscriptions")
	}
	if err := resource.CheckSubscription(config); err != nil {
		return nil, err
	}
	if err := s.checkDeadLetters(config); err != nil {
		return nil, err
	}
	created, err := s.subscribe(topic, config)
	if err != nil {
		return nil, err
	}
	return created.describe(), nil
}

func (s *Server) subscribe(to *topic, config *pubsubpb.Subscription) (*subscription, error) {
	f, err := filter.Parse(config.GetFilter())
	if err != nil {
		return nil, resource.Invalid("filter", "%v", err)
	}
	created := newSubscription(s, to, config, f)
	if err := to.attach(created); err != nil {
		created.alarm.stop()
		return nil, err
	}
	return created, nil
}

// checkDeadLetters checks a dead letter policy. It must be called for a new policy only, because
// the topic of an old policy may have been deleted.
func (s *Server) checkDeadLetters(config *pubsubpb.Subscription) error {
	policy := config.GetDeadLetterPolicy()
	if err := resource.CheckDeadLetters(policy); err != nil {
		return err
	}
	if policy == nil {
		return nil
	}
	_, err := s.topic(policy.GetDeadLetterTopic())
	return err
}

// GetSubscription returns a subscription. It returns NOT_FOUND if the subscription is unknown.
func (s subscriber) GetSubscription(_ context.Context, req *pubsubpb.GetSubscriptionRequest) (*pubsubpb.Subscription, error) {
	found, err := s.subscription(req.GetSubscription())
	if err != nil {
		return nil, err
	}
	return found.describe(), nil
}

// ListSubscriptions returns a project's subscriptions in the order of their
// names.
func (s subscriber) ListSubscriptions(
	_ context.Context, req *pubsubpb.ListSubscriptionsRequest,
) (*pubsubpb.ListSubscriptionsResponse, error) {
	names, next, err := s.subscriptions.page(req.GetProject(), req)
	if err != nil {
		return nil, err
	}
	answer := &pubsubpb.ListSubscriptionsResponse{NextPageToken: next}
	for _, name := range names {
		if found, err := s.subscription(name); err == nil {
			answer.Subscriptions = append(answer.Subscriptions, found.describe())
		}
	}
	return answer, nil
}

// UpdateSubscription changes the fields that the update mask names. The name,
// topic, filter and ordering cannot be changed.
func (s subscriber) UpdateSubscription(_ context.Context, req *pubsubpb.UpdateSubscriptionRequest) (*pubsubpb.Subscription, error) {
	found, err := s.subscription(req.GetSubscription().GetName())
	if err != nil {
		return nil, err
	}
	if err := s.update(found, req); err != nil {
		return nil, err
	}
	return found.describe(), nil
}

func (s subscriber) update(found *subscription, req *pubsubpb.UpdateSubscriptionRequest) error {
	found.lock()
	defer found.unlock()
	config := proto.CloneOf(found.config)
	if err := resource.ApplyMask(config, req.GetSubscription(), req.GetUpdateMask(), resource.SubscriptionFields); err != nil {
		return err
	}
	if err := resource.CheckSubscription(config); err != nil {
		return err
	}
	if resource.MaskNames(req.GetUpdateMask(), "dead_letter_policy") {
		if err := s.checkDeadLetters(config); err != nil {
			return err
		}
	}
	found.configure(config)
	found.touch()
	found.retain()
	return nil
}

// DeleteSubscription deletes a subscription and all its messages, and ends its streams.
func (s subscriber) DeleteSubscription(_ context.Context, req *pubsubpb.DeleteSubscriptionRequest) (*emptypb.Empty, error) {
	found, err := s.subscription(req.GetSubscription())
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, s.deleteSubscription(found)
}

func (s *Server) deleteSubscription(found *subscription) error {
	if !s.subscriptions.remove(found.name, found) {
		return resource.Missing(found.name)
	}
	s.policies.Remove(found.name)
	found.lock()
	topic := found.topic
	found.end(resource.Missing(found.name))
	found.unlock()
	if topic != nil {
		topic.detach(found)
	}
	return nil
}

// ModifyPushConfig is not served, because this server has no push.
func (subscriber) ModifyPushConfig(context.Context, *pubsubpb.ModifyPushConfigRequest) (*emptypb.Empty, error) {
	return nil, status.Error(codes.Unimplemented, "push_config: this server delivers to pulling subscribers only")
}
