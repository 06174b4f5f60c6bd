package localpubsub_test

import (
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"example.com/lockstep/localpubsub"
)

// TestPullHasAnEmptyPushConfig: programs read the endpoint of it without a look whether it is there.
func TestPullHasAnEmptyPushConfig(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.topic()
	created, err := w.CreateSubscription(w.context(), &pubsubpb.Subscription{Name: subscriptionName, Topic: topicName})
	if err != nil {
		t.Fatal(err)
	}
	updated, err := w.UpdateSubscription(w.context(), &pubsubpb.UpdateSubscriptionRequest{
		Subscription: &pubsubpb.Subscription{Name: subscriptionName}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"push_config"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	read, err := w.GetSubscription(w.context(), &pubsubpb.GetSubscriptionRequest{Subscription: subscriptionName})
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []*pubsubpb.Subscription{created, updated, read} {
		if got.GetPushConfig() == nil || got.GetPushConfig().GetPushEndpoint() != "" {
			t.Errorf("push_config %v, want an empty one", got.GetPushConfig())
		}
	}
}
