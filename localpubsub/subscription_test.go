package localpubsub_test

import (
	"testing"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

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
		"a stream": {func(w *world, _ []*pubsubpb.ReceivedMessage) {
			w.stream(0)
			w.clock.Advance(20 * time.Hour)
		}, codes.OK},
		"the end of a stream": {func(w *world, _ []*pubsubpb.ReceivedMessage) {
			s := w.stream(0)
			w.clock.Advance(time.Hour) // the server looks at its streams at the end of a time to live
			w.clock.Advance(19 * time.Hour)
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
			const idle = "projects/p/subscriptions/idle"
			w.subscribe(&pubsubpb.Subscription{Name: idle, MessageRetentionDuration: day, ExpirationPolicy: &pubsubpb.ExpirationPolicy{Ttl: day}})
			w.clock.Advance(23 * time.Hour)
			test.use(w, got)
			w.clock.Advance(20 * time.Hour)
			_, err := w.GetSubscription(w.context(), &pubsubpb.GetSubscriptionRequest{Subscription: subscriptionName})
			if status.Code(err) != test.want {
				t.Errorf("after 20 hours: %v, want %s", err, test.want)
			}
			_, err = w.GetSubscription(w.context(), &pubsubpb.GetSubscriptionRequest{Subscription: idle})
			wantCode(t, err, codes.NotFound)
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

// TestUpdatedRetentionApplies: a shorter retention of the topic or of the subscription drops the messages that are too old then.
func TestUpdatedRetentionApplies(t *testing.T) {
	t.Parallel()
	retention := &fieldmaskpb.FieldMask{Paths: []string{"message_retention_duration"}}
	short := durationpb.New(10 * time.Minute)
	w := newWorld(t, localpubsub.Options{})
	if _, err := w.CreateTopic(w.context(), &pubsubpb.Topic{
		Name: topicName, MessageRetentionDuration: durationpb.New(time.Hour),
	}); err != nil {
		t.Fatal(err)
	}
	w.subscribe(&pubsubpb.Subscription{MessageRetentionDuration: durationpb.New(30 * time.Minute)})
	w.publish("", "old")
	w.clock.Advance(20 * time.Minute)
	read := func() *pubsubpb.Subscription {
		got, err := w.GetSubscription(w.context(), &pubsubpb.GetSubscriptionRequest{Subscription: subscriptionName})
		wantCode(t, err, codes.OK)
		return got
	}
	_, err := w.UpdateTopic(w.context(), &pubsubpb.UpdateTopicRequest{
		Topic: &pubsubpb.Topic{Name: topicName, MessageRetentionDuration: short}, UpdateMask: retention,
	})
	wantCode(t, err, codes.OK)
	if got := read().GetTopicMessageRetentionDuration().AsDuration(); got != 10*time.Minute {
		t.Errorf("the topic keeps messages for %s", got)
	}
	const late = "projects/p/subscriptions/late"
	w.subscribe(&pubsubpb.Subscription{Name: late})
	_, err = w.Seek(w.context(), &pubsubpb.SeekRequest{
		Subscription: late, Target: &pubsubpb.SeekRequest_Time{Time: timestamppb.New(worldTime)},
	})
	wantCode(t, err, codes.OK)
	if n := w.backlogOf(late); n != 0 {
		t.Errorf("the topic has kept %d messages that are too old", n)
	}
	_, err = w.UpdateSubscription(w.context(), &pubsubpb.UpdateSubscriptionRequest{
		Subscription: &pubsubpb.Subscription{Name: subscriptionName, MessageRetentionDuration: short}, UpdateMask: retention,
	})
	wantCode(t, err, codes.OK)
	wantTexts(t, w.pull())
}

// TestTopicStopsToKeepMessages: an update or a deletion of the topic ends its retention at once, and the one of the subscription
// holds.
func TestTopicStopsToKeepMessages(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*world) error{
		"update": func(w *world) error {
			_, err := w.UpdateTopic(w.context(), &pubsubpb.UpdateTopicRequest{
				Topic: &pubsubpb.Topic{Name: topicName}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"message_retention_duration"}},
			})
			return err
		},
		"deletion": func(w *world) error {
			_, err := w.DeleteTopic(w.context(), &pubsubpb.DeleteTopicRequest{Topic: topicName})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, localpubsub.Options{})
			if _, err := w.CreateTopic(w.context(), &pubsubpb.Topic{
				Name: topicName, MessageRetentionDuration: durationpb.New(time.Hour),
			}); err != nil {
				t.Fatal(err)
			}
			w.subscribe(&pubsubpb.Subscription{MessageRetentionDuration: durationpb.New(10 * time.Minute)})
			w.publish("", "old")
			w.clock.Advance(10 * time.Minute)
			w.publish("", "new")
			wantCode(t, stop(w), codes.OK)
			wantTexts(t, w.pull(), "new")
		})
	}
}

func (w *world) backlogOf(name string) int {
	w.t.Helper()
	answer, err := w.Pull(w.context(), &pubsubpb.PullRequest{
		Subscription: name, MaxMessages: 1000, ReturnImmediately: true, //nolint:staticcheck // no wait wanted
	})
	wantCode(w.t, err, codes.OK)
	return len(answer.GetReceivedMessages())
}

// TestRefusedSettings: a create and an update refuse the same settings.
func TestRefusedSettings(t *testing.T) {
	t.Parallel()
	w := plain(t)
	for name, test := range map[string]struct {
		config *pubsubpb.Subscription
		path   string
		want   codes.Code
	}{
		"dead letters to a missing topic": {&pubsubpb.Subscription{
			DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: "projects/p/topics/missing"},
		}, "dead_letter_policy", codes.NotFound},
		"a life shorter than the retention": {&pubsubpb.Subscription{
			ExpirationPolicy: &pubsubpb.ExpirationPolicy{Ttl: durationpb.New(48 * time.Hour)},
		}, "expiration_policy", codes.InvalidArgument},
		"a shortest backoff above the longest": {&pubsubpb.Subscription{RetryPolicy: &pubsubpb.RetryPolicy{
			MinimumBackoff: durationpb.New(2 * time.Second), MaximumBackoff: durationpb.New(time.Second),
		}}, "retry_policy", codes.InvalidArgument},
		"a label without a key": {&pubsubpb.Subscription{Labels: map[string]string{"": "v"}}, "labels", codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.config.Name, test.config.Topic = subscriptionName, topicName
			_, err := w.UpdateSubscription(w.context(), &pubsubpb.UpdateSubscriptionRequest{
				Subscription: test.config, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{test.path}},
			})
			wantCode(t, err, test.want)
			test.config.Name = "projects/p/subscriptions/other"
			_, err = w.CreateSubscription(w.context(), test.config)
			wantCode(t, err, test.want)
		})
	}
}

// TestDeletedResourceHasNoPolicy: a new resource does not inherit the policy of a deleted one of the same name, and a detached
// subscription is no longer one of its topic.
func TestDeletedResourceHasNoPolicy(t *testing.T) {
	t.Parallel()
	w := plain(t)
	policies := iampb.NewIAMPolicyClient(w.conn)
	binding := &iampb.Binding{Role: "roles/pubsub.viewer", Members: []string{"allUsers"}}
	for _, name := range []string{topicName, subscriptionName} {
		_, err := policies.SetIamPolicy(w.context(), &iampb.SetIamPolicyRequest{
			Resource: name, Policy: &iampb.Policy{Bindings: []*iampb.Binding{binding}},
		})
		wantCode(t, err, codes.OK)
	}
	_, err := w.DetachSubscription(w.context(), &pubsubpb.DetachSubscriptionRequest{Subscription: subscriptionName})
	wantCode(t, err, codes.OK)
	left, err := w.ListTopicSubscriptions(w.context(), &pubsubpb.ListTopicSubscriptionsRequest{Topic: topicName})
	if err != nil || len(left.GetSubscriptions()) > 0 {
		t.Errorf("after the detachment the topic has %v, %v", left, err)
	}
	_, err = w.DeleteSubscription(w.context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: subscriptionName})
	wantCode(t, err, codes.OK)
	_, err = w.DeleteTopic(w.context(), &pubsubpb.DeleteTopicRequest{Topic: topicName})
	wantCode(t, err, codes.OK)
	w.subscribe(&pubsubpb.Subscription{})
	for _, name := range []string{topicName, subscriptionName} {
		policy, err := policies.GetIamPolicy(w.context(), &iampb.GetIamPolicyRequest{Resource: name})
		if err != nil || len(policy.GetBindings()) > 0 {
			t.Errorf("the new %s has %v, %v", name, policy, err)
		}
	}
}
