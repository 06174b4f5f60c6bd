package conformance

import (
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
)

func subscriptionUpdates() area {
	source := rpc("UpdateSubscriptionRequest")
	properties := page("subscription-properties")
	return area{"subscription updates", []Behaviour{
		{Name: "a subscription update changes the fields of its mask and no others", Source: source, try: updateObeysMask},
		{Name: "a subscription's policies can be set and cleared", Source: source, try: updatePolicies},
		{Name: "a subscription's labels can be updated", Source: page("labels"), try: updateLabels},
		{Name: "a subscription's expiry can be updated", Source: properties, try: updateExpiry},
		{Name: "message ordering is immutable", Source: page("ordering"), try: orderingIsImmutable},
		{Name: "a filter is immutable", Source: page("subscription-message-filter"), try: filterIsImmutable},
		{Name: "a subscription's topic is immutable", Source: rpc("Subscriber.UpdateSubscription"), try: topicIsImmutable},
		{Name: "a subscription update without a mask is refused", Source: source, try: updateNeedsMask},
		{Name: "a subscription update with an unknown field in its mask is refused", Source: source, try: updateKnowsFields},
		{Name: "a subscription update is held to the limits of a creation", Source: rpc("Subscription"), try: updateIsLimited},
		{Name: "a new acknowledgement deadline holds for the next deliveries", Source: rpc("Subscription"), try: updatedDeadlineHolds},
	}}
}

func updateObeysMask(t *trial) {
	name := t.subscriptionWith(&pubsubpb.Subscription{
		Topic: t.topic(), AckDeadlineSeconds: 20, MessageRetentionDuration: durationpb.New(time.Hour),
	})
	updated, err := t.updateSubscription(&pubsubpb.Subscription{
		Name: name, AckDeadlineSeconds: 30, MessageRetentionDuration: durationpb.New(2 * time.Hour), RetainAckedMessages: true,
	}, "ack_deadline_seconds", "retain_acked_messages")
	t.must(err)
	for _, got := range []*pubsubpb.Subscription{updated, t.getSubscription(name)} {
		equal(t, "deadline", got.GetAckDeadlineSeconds(), 30)
		equal(t, "retention of acknowledged messages", got.GetRetainAckedMessages(), true)
		equal(t, "retention, outside of the mask", got.GetMessageRetentionDuration().AsDuration(), time.Hour)
	}
}

func updatePolicies(t *trial) {
	name, dead := t.subscription(t.topic()), t.topic()
	_, err := t.updateSubscription(&pubsubpb.Subscription{
		Name: name, EnableExactlyOnceDelivery: true,
		DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: dead, MaxDeliveryAttempts: 6},
		RetryPolicy:      &pubsubpb.RetryPolicy{MinimumBackoff: durationpb.New(2 * time.Second), MaximumBackoff: durationpb.New(time.Minute)},
	}, "dead_letter_policy", "retry_policy", "enable_exactly_once_delivery")
	t.must(err)
	got := t.getSubscription(name)
	equal(t, "dead letter topic", got.GetDeadLetterPolicy().GetDeadLetterTopic(), dead)
	equal(t, "attempts", got.GetDeadLetterPolicy().GetMaxDeliveryAttempts(), 6)
	equal(t, "minimum backoff", got.GetRetryPolicy().GetMinimumBackoff().AsDuration(), 2*time.Second)
	equal(t, "exactly-once delivery", got.GetEnableExactlyOnceDelivery(), true)

	_, err = t.updateSubscription(&pubsubpb.Subscription{Name: name}, "dead_letter_policy", "retry_policy", "enable_exactly_once_delivery")
	t.must(err)
	got = t.getSubscription(name)
	t.checkf(got.GetDeadLetterPolicy() == nil, "the dead letter policy is still %v", got.GetDeadLetterPolicy())
	t.checkf(got.GetRetryPolicy() == nil, "the retry policy is still %v", got.GetRetryPolicy())
	equal(t, "exactly-once delivery", got.GetEnableExactlyOnceDelivery(), false)
}

func updateLabels(t *trial) {
	name := t.subscriptionWith(&pubsubpb.Subscription{Topic: t.topic(), Labels: map[string]string{"team": "a", "stage": "test"}})
	_, err := t.updateSubscription(&pubsubpb.Subscription{Name: name, Labels: map[string]string{"team": "b"}}, "labels")
	t.must(err)
	got := t.getSubscription(name).GetLabels()
	equal(t, "number of labels", len(got), 1)
	equal(t, "label", got["team"], "b")
}

func updateExpiry(t *trial) {
	name := t.subscription(t.topic())
	policy := &pubsubpb.ExpirationPolicy{Ttl: durationpb.New(40 * day)}
	_, err := t.updateSubscription(&pubsubpb.Subscription{Name: name, ExpirationPolicy: policy}, "expiration_policy")
	t.must(err)
	equal(t, "expiry", t.getSubscription(name).GetExpirationPolicy().GetTtl().AsDuration(), 40*day)
}

func orderingIsImmutable(t *trial) {
	name := t.subscription(t.topic())
	_, err := t.updateSubscription(&pubsubpb.Subscription{Name: name, EnableMessageOrdering: true}, "enable_message_ordering")
	t.code("update", err, codes.InvalidArgument)
	equal(t, "ordering", t.getSubscription(name).GetEnableMessageOrdering(), false)
}

func filterIsImmutable(t *trial) {
	const filter = `attributes.kind = "a"`
	name := t.subscriptionWith(&pubsubpb.Subscription{Topic: t.topic(), Filter: filter})
	_, err := t.updateSubscription(&pubsubpb.Subscription{Name: name, Filter: `attributes.kind = "b"`}, "filter")
	t.code("update", err, codes.InvalidArgument)
	equal(t, "filter", t.getSubscription(name).GetFilter(), filter)
}

func topicIsImmutable(t *trial) {
	topic, other := t.topic(), t.topic()
	name := t.subscription(topic)
	_, err := t.updateSubscription(&pubsubpb.Subscription{Name: name, Topic: other}, "topic")
	t.code("update", err, codes.InvalidArgument)
	equal(t, "topic", t.getSubscription(name).GetTopic(), topic)
}

func updateNeedsMask(t *trial) {
	_, err := t.updateSubscription(&pubsubpb.Subscription{Name: t.subscription(t.topic()), AckDeadlineSeconds: 20})
	t.code("update", err, codes.InvalidArgument)
}

func updateKnowsFields(t *trial) {
	_, err := t.updateSubscription(&pubsubpb.Subscription{Name: t.subscription(t.topic())}, "colour")
	t.code("update", err, codes.InvalidArgument)
}

func updateIsLimited(t *trial) {
	name := t.subscription(t.topic())
	for path, s := range map[string]*pubsubpb.Subscription{
		"ack_deadline_seconds":       {AckDeadlineSeconds: 9},
		"message_retention_duration": {MessageRetentionDuration: durationpb.New(time.Minute)},
		"retry_policy":               {RetryPolicy: &pubsubpb.RetryPolicy{MaximumBackoff: durationpb.New(601 * time.Second)}},
	} {
		s.Name = name
		_, err := t.updateSubscription(s, path)
		t.refused(path, err)
	}
}

func updatedDeadlineHolds(t *trial) {
	topic := t.topic()
	name := t.subscription(topic)
	_, err := t.updateSubscription(&pubsubpb.Subscription{Name: name, AckDeadlineSeconds: 10}, "ack_deadline_seconds")
	t.must(err)
	t.publish(topic, text("a"))
	t.pull(name, 1)
	t.pull(name, 1) // comes only after the new deadline: the former one outlasts the trial
}
