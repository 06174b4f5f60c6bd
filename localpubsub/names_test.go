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

// TestProjectsOfLists: a list of a malformed project is INVALID_ARGUMENT, and a list of an unknown project is empty.
func TestProjectsOfLists(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	schemas := pubsubpb.NewSchemaServiceClient(w.conn)
	for name, list := range map[string]func(ctx context.Context, project string) error{
		"ListTopics": func(ctx context.Context, project string) error {
			_, err := w.ListTopics(ctx, &pubsubpb.ListTopicsRequest{Project: project})
			return err
		},
		"ListSubscriptions": func(ctx context.Context, project string) error {
			_, err := w.ListSubscriptions(ctx, &pubsubpb.ListSubscriptionsRequest{Project: project})
			return err
		},
		"ListSnapshots": func(ctx context.Context, project string) error {
			_, err := w.ListSnapshots(ctx, &pubsubpb.ListSnapshotsRequest{Project: project})
			return err
		},
		"ListSchemas": func(ctx context.Context, project string) error {
			_, err := schemas.ListSchemas(ctx, &pubsubpb.ListSchemasRequest{Parent: project})
			return err
		},
	} {
		for project, want := range map[string]codes.Code{
			"": codes.InvalidArgument, "p": codes.InvalidArgument, "projects/": codes.InvalidArgument, "topics/p": codes.InvalidArgument,
			"projects/p/": codes.InvalidArgument, "projects/p/topics": codes.InvalidArgument,
			"projects/p": codes.OK, "projects/example.com:acme": codes.OK,
		} {
			if err := list(w.context(), project); status.Code(err) != want {
				t.Errorf("%s of project %q = %v, want %v", name, project, err, want)
			}
		}
	}
}
