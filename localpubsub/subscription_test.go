package localpubsub_test

import (
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
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

// TestUnusedSubscriptionExpires: a subscription expires after its time to live without a use. A call about its messages
// is a use, and so is an open stream up to its end.
func TestUnusedSubscriptionExpires(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		use  func(*world, []*pubsubpb.ReceivedMessage)
		want codes.Code
	}{
		"no use":             {func(*world, []*pubsubpb.ReceivedMessage) {}, codes.NotFound},
		"a pull":             {func(w *world, _ []*pubsubpb.ReceivedMessage) { w.pull() }, codes.OK},
		"an acknowledgement": {func(w *world, got []*pubsubpb.ReceivedMessage) { w.ack(got...) }, codes.OK},
		"a new deadline":     {func(w *world, got []*pubsubpb.ReceivedMessage) { w.modify(60, got...) }, codes.OK},
		"a seek":             {func(w *world, _ []*pubsubpb.ReceivedMessage) { w.seekTo(worldTime) }, codes.OK},
		"a stream":           {func(w *world, _ []*pubsubpb.ReceivedMessage) { w.stream(0) }, codes.OK},
		"the end of a stream": {func(w *world, _ []*pubsubpb.ReceivedMessage) {
			s := w.stream(0)
			w.clock.Advance(20 * time.Hour)
			s.closed()
		}, codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, localpubsub.Options{})
			day := durationpb.New(24 * time.Hour)
			w.subscribe(&pubsubpb.Subscription{MessageRetentionDuration: day, ExpirationPolicy: &pubsubpb.ExpirationPolicy{Ttl: day}})
			w.publish("", "m")
			got := w.pull()
			w.clock.Advance(23 * time.Hour)
			test.use(w, got)
			w.clock.Advance(20 * time.Hour)
			_, err := w.GetSubscription(w.context(), &pubsubpb.GetSubscriptionRequest{Subscription: subscriptionName})
			if status.Code(err) != test.want {
				t.Errorf("after 20 hours: %v, want %s", err, test.want)
			}
		})
	}
}

// closed closes the client's side of the stream, and waits for its end.
func (s *stream) closed() {
	s.w.t.Helper()
	if err := s.CloseSend(); err != nil {
		s.w.t.Fatal(err)
	}
	for _, err := s.Recv(); err == nil; _, err = s.Recv() {
	}
}
