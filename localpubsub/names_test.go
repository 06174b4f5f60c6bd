package localpubsub_test

import (
	"context"
	"testing"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/localpubsub"
)

// TestNamesOfCalls: a malformed name is INVALID_ARGUMENT, as in the official emulator, and the name of
// nothing is NOT_FOUND.
func TestNamesOfCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.topic()
	messages := []*pubsubpb.PubsubMessage{{Data: []byte("m")}}
	for _, test := range []struct {
		call, collection string
		do               func(ctx context.Context, name string) error
	}{
		{"GetTopic", "topics", func(ctx context.Context, name string) error {
			_, err := w.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: name})
			return err
		}},
		{"DeleteTopic", "topics", func(ctx context.Context, name string) error {
			_, err := w.DeleteTopic(ctx, &pubsubpb.DeleteTopicRequest{Topic: name})
			return err
		}},
		{"Publish", "topics", func(ctx context.Context, name string) error {
			_, err := w.Publish(ctx, &pubsubpb.PublishRequest{Topic: name, Messages: messages})
			return err
		}},
		{"CreateSubscription", "topics", func(ctx context.Context, name string) error {
			_, err := w.CreateSubscription(ctx, &pubsubpb.Subscription{Name: subscriptionName, Topic: name})
			return err
		}},
		{"CreateSubscription with dead letters", "topics", func(ctx context.Context, name string) error {
			_, err := w.CreateSubscription(ctx, &pubsubpb.Subscription{
				Name: subscriptionName, Topic: topicName, DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: name},
			})
			return err
		}},
		{"Pull", "subscriptions", func(ctx context.Context, name string) error {
			_, err := w.Pull(ctx, &pubsubpb.PullRequest{Subscription: name, MaxMessages: 1})
			return err
		}},
		{"DeleteSubscription", "subscriptions", func(ctx context.Context, name string) error {
			_, err := w.DeleteSubscription(ctx, &pubsubpb.DeleteSubscriptionRequest{Subscription: name})
			return err
		}},
		{"GetSnapshot", "snapshots", func(ctx context.Context, name string) error {
			_, err := w.GetSnapshot(ctx, &pubsubpb.GetSnapshotRequest{Snapshot: name})
			return err
		}},
		{"DeleteSnapshot", "snapshots", func(ctx context.Context, name string) error {
			_, err := w.DeleteSnapshot(ctx, &pubsubpb.DeleteSnapshotRequest{Snapshot: name})
			return err
		}},
		{"GetIamPolicy", "topics", func(ctx context.Context, name string) error {
			_, err := iampb.NewIAMPolicyClient(w.conn).GetIamPolicy(ctx, &iampb.GetIamPolicyRequest{Resource: name})
			return err
		}},
	} {
		for name, want := range map[string]codes.Code{
			"": codes.InvalidArgument, "events": codes.InvalidArgument, "projects/p/" + test.collection + "/ab": codes.InvalidArgument,
			"projects/p/" + test.collection + "/missing": codes.NotFound,
		} {
			if err := test.do(w.context(), name); status.Code(err) != want {
				t.Errorf("%s of %q = %v, want %s", test.call, name, err, want)
			}
		}
	}
}
