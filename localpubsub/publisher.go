package localpubsub

import (
	"context"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"example.com/lockstep/localpubsub/internal/resource"
)

// publisher serves google.pubsub.v1.Publisher.
type publisher struct {
	pubsubpb.UnimplementedPublisherServer

	*Server
}

// CreateTopic creates a topic. It returns ALREADY_EXISTS if the name is taken.
func (p publisher) CreateTopic(_ context.Context, req *pubsubpb.Topic) (*pubsubpb.Topic, error) {
	config := proto.CloneOf(req)
	if err := resource.CheckTopic(config); err != nil {
		return nil, err
	}
	if err := p.checkTopicSchema(config); err != nil {
		return nil, err
	}
	created := newTopic(p.Server, config)
	if err := p.topics.put(config.GetName(), created); err != nil {
		return nil, err
	}
	return created.describe(), nil
}

// checkTopicSchema checks the schema settings of a topic. It must be called for new settings only,
// because the schema of old settings may have been deleted.
func (s *Server) checkTopicSchema(config *pubsubpb.Topic) error {
	if config.GetSchemaSettings() == nil {
		return nil
	}
	return s.schemas.CheckSettings(config.GetSchemaSettings())
}

func (t *topic) describe() *pubsubpb.Topic {
	t.mu.Lock()
	defer t.mu.Unlock()
	described := proto.CloneOf(t.config)
	described.State = pubsubpb.Topic_ACTIVE
	return described
}

// GetTopic returns NOT_FOUND for an unknown topic.
func (p publisher) GetTopic(_ context.Context, req *pubsubpb.GetTopicRequest) (*pubsubpb.Topic, error) {
	found, err := p.topic(req.GetTopic())
	if err != nil {
		return nil, err
	}
	return found.describe(), nil
}

// ListTopics returns a project's topics in the order of their names.
func (p publisher) ListTopics(_ context.Context, req *pubsubpb.ListTopicsRequest) (*pubsubpb.ListTopicsResponse, error) {
	names, next, err := p.topics.page(req.GetProject(), req)
	if err != nil {
		return nil, err
	}
	answer := &pubsubpb.ListTopicsResponse{NextPageToken: next}
	for _, name := range names {
		if found, err := p.topic(name); err == nil {
			answer.Topics = append(answer.Topics, found.describe())
		}
	}
	return answer, nil
}

// UpdateTopic changes the fields that the update mask names.
func (p publisher) UpdateTopic(_ context.Context, req *pubsubpb.UpdateTopicRequest) (*pubsubpb.Topic, error) {
	found, err := p.topic(req.GetTopic().GetName())
	if err != nil {
		return nil, err
	}
	if err := found.update(req); err != nil {
		return nil, err
	}
	found.forgetOld() // the retention may be shorter now
	return found.describe(), nil
}

func (t *topic) update(req *pubsubpb.UpdateTopicRequest) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	config := proto.CloneOf(t.config)
	if err := resource.ApplyMask(config, req.GetTopic(), req.GetUpdateMask(), resource.TopicFields); err != nil {
		return err
	}
	if err := resource.CheckTopic(config); err != nil {
		return err
	}
	if resource.MaskNames(req.GetUpdateMask(), "schema_settings") {
		if err := t.server.checkTopicSchema(config); err != nil {
			return err
		}
	}
	t.config = config
	for _, s := range t.subscriptions {
		s.setTopicRetention(t.retention())
	}
	return nil
}

// DeleteTopic deletes a topic. The subscriptions of the topic keep their messages, and have no
// topic afterwards.
func (p publisher) DeleteTopic(_ context.Context, req *pubsubpb.DeleteTopicRequest) (*emptypb.Empty, error) {
	found, err := p.topic(req.GetTopic())
	if err != nil {
		return nil, err
	}
	if !p.topics.remove(found.name, found) {
		return nil, resource.Missing(req.GetTopic())
	}
	p.policies.Remove(req.GetTopic())
	found.end()
	return &emptypb.Empty{}, nil
}

// ListTopicSubscriptions returns the names of the topic's subscriptions.
func (p publisher) ListTopicSubscriptions(
	_ context.Context, req *pubsubpb.ListTopicSubscriptionsRequest,
) (*pubsubpb.ListTopicSubscriptionsResponse, error) {
	found, err := p.topic(req.GetTopic())
	if err != nil {
		return nil, err
	}
	var all []string
	found.mu.Lock()
	for _, s := range found.subscriptions {
		all = append(all, s.name)
	}
	found.mu.Unlock()
	names, next, err := resource.Page(all, req)
	return &pubsubpb.ListTopicSubscriptionsResponse{Subscriptions: names, NextPageToken: next}, err
}

// ListTopicSnapshots returns the names of the snapshots of the topic.
func (p publisher) ListTopicSnapshots(
	_ context.Context, req *pubsubpb.ListTopicSnapshotsRequest,
) (*pubsubpb.ListTopicSnapshotsResponse, error) {
	found, err := p.topic(req.GetTopic())
	if err != nil {
		return nil, err
	}
	var all []string
	found.mu.Lock()
	for _, s := range found.snapshots {
		all = append(all, s.name)
	}
	found.mu.Unlock()
	names, next, err := resource.Page(all, req)
	return &pubsubpb.ListTopicSnapshotsResponse{Snapshots: names, NextPageToken: next}, err
}

// DetachSubscription detaches a subscription from its topic permanently, and drops the messages of
// the subscription. After that, pulls return FAILED_PRECONDITION.
func (p publisher) DetachSubscription(
	_ context.Context, req *pubsubpb.DetachSubscriptionRequest,
) (*pubsubpb.DetachSubscriptionResponse, error) {
	found, err := p.subscription(req.GetSubscription())
	if err != nil {
		return nil, err
	}
	found.lock()
	topic := found.topic
	found.end(detached(found.name))
	found.unlock()
	if topic != nil {
		topic.detach(found)
	}
	return &pubsubpb.DetachSubscriptionResponse{}, nil
}

func detached(name string) error {
	return status.Errorf(codes.FailedPrecondition, "The subscription %s is detached from its topic.", name)
}
