package conformance

import (
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

const day = 24 * time.Hour

func subscriptions() area {
	return area{"subscriptions", []Behaviour{
		{Name: "a subscription is read back as it was created", Source: rpc("Subscription"), try: subscriptionIsReadBack},
		{Name: "a subscription has the documented defaults", Source: rpc("Subscription"), try: subscriptionDefaults},
		{Name: "a new subscription is active", Source: rpc("Subscription.State"), try: subscriptionIsActive},
		{Name: "a subscription reports its topic's retention", Source: rpc("Subscription"), try: subscriptionReportsTopicRetention},
		{Name: "a second subscription of the same name already exists", Source: rpc("Subscriber.CreateSubscription"), try: subscriptionExists},
		{Name: "a subscription to a missing topic is not found", Source: rpc("Subscriber.CreateSubscription"), try: subscriptionNeedsTopic},
		{Name: "a malformed subscription name is refused", Source: rpc("Subscription"), try: subscriptionNameIsChecked},
		{Name: "a subscription created without a name is given one", Source: rpc("Subscriber.CreateSubscription"), try: subscriptionIsNamed},
		{Name: "a missing subscription is not found", Source: page("reference/error-codes"), try: subscriptionIsMissing},
		{Name: "the acknowledgement deadline is between 10 and 600 seconds", Source: rpc("Subscription"), try: deadlineIsLimited},
		{Name: "retention is between 10 minutes and 31 days", Source: rpc("Subscription"), try: retentionIsLimited},
		{Name: "a subscription expires after a day at least, or never", Source: rpc("ExpirationPolicy"), try: expirationIsLimited},
		{Name: "subscriptions are listed in pages, each once", Source: rpc("ListSubscriptionsRequest"), try: subscriptionsAreListed},
		{Name: "a deleted subscription is gone with its backlog", Source: rpc("Subscriber.DeleteSubscription"), try: subscriptionIsDeleted},
		{
			Name:   "a detached subscription refuses pulls and has lost its messages",
			Source: rpc("Publisher.DetachSubscription"), try: subscriptionIsDetached,
		},
	}}
}

func subscriptionIsReadBack(t *trial) {
	want := &pubsubpb.Subscription{
		Topic: t.topic(), AckDeadlineSeconds: 42, RetainAckedMessages: true, MessageRetentionDuration: durationpb.New(day),
		Labels: map[string]string{"team": "a"}, EnableMessageOrdering: true, EnableExactlyOnceDelivery: true, Filter: `attributes.kind = "a"`,
		ExpirationPolicy: &pubsubpb.ExpirationPolicy{Ttl: durationpb.New(2 * day)},
		DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: t.topic(), MaxDeliveryAttempts: 7},
		RetryPolicy:      &pubsubpb.RetryPolicy{MinimumBackoff: durationpb.New(time.Second), MaximumBackoff: durationpb.New(time.Minute)},
	}
	got := t.getSubscription(t.subscriptionWith(want))
	got.State, got.PushConfig = 0, nil // the service sets a state, and an empty push_config for pull
	t.checkf(proto.Equal(got, want), "read %v, want %v", got, want)
}

func subscriptionDefaults(t *trial) {
	name := t.name("subscriptions")
	created, err := t.createSubscription(&pubsubpb.Subscription{Name: name, Topic: t.topic()})
	t.must(err)
	for _, got := range []*pubsubpb.Subscription{created, t.getSubscription(name)} {
		equal(t, "deadline", got.GetAckDeadlineSeconds(), 10)
		equal(t, "retention", got.GetMessageRetentionDuration().AsDuration(), 7*day)
		equal(t, "expiry", got.GetExpirationPolicy().GetTtl().AsDuration(), 31*day)
	}
}

func subscriptionIsActive(t *trial) {
	equal(t, "state", t.getSubscription(t.subscription(t.topic())).GetState(), pubsubpb.Subscription_ACTIVE)
}

func subscriptionReportsTopicRetention(t *trial) {
	topic := t.topicWith(&pubsubpb.Topic{MessageRetentionDuration: durationpb.New(time.Hour)})
	got := t.getSubscription(t.subscription(topic.GetName())).GetTopicMessageRetentionDuration()
	equal(t, "topic retention", got.AsDuration(), time.Hour)
}

func subscriptionExists(t *trial) {
	topic := t.topic()
	_, err := t.createSubscription(&pubsubpb.Subscription{Name: t.subscription(topic), Topic: topic})
	t.code("second creation", err, codes.AlreadyExists)
}

func subscriptionNeedsTopic(t *trial) {
	_, err := t.createSubscription(&pubsubpb.Subscription{Name: t.name("subscriptions"), Topic: t.name("topics")})
	t.code("creation", err, codes.NotFound)
}

func subscriptionNameIsChecked(t *trial) {
	topic := t.topic()
	for _, id := range malformed() {
		_, err := t.createSubscription(&pubsubpb.Subscription{Name: "projects/" + t.project + "/subscriptions/" + id, Topic: topic})
		t.code("subscription "+id, err, codes.InvalidArgument)
	}
}

func subscriptionIsNamed(t *trial) {
	created, err := t.createSubscription(&pubsubpb.Subscription{Topic: t.topic()})
	t.must(err)
	prefix := "projects/" + t.project + "/subscriptions/"
	t.checkf(strings.HasPrefix(created.GetName(), prefix) && len(created.GetName()) > len(prefix), "name is %q", created.GetName())
	t.getSubscription(created.GetName())
}

func subscriptionIsMissing(t *trial) {
	missing := t.name("subscriptions")
	_, err := t.subscriber.GetSubscription(t.ctx, &pubsubpb.GetSubscriptionRequest{Subscription: missing})
	t.code("get", err, codes.NotFound)
	_, err = t.updateSubscription(&pubsubpb.Subscription{Name: missing, AckDeadlineSeconds: 20}, "ack_deadline_seconds")
	t.code("update", err, codes.NotFound)
	_, err = t.subscriber.DeleteSubscription(t.ctx, &pubsubpb.DeleteSubscriptionRequest{Subscription: missing})
	t.code("delete", err, codes.NotFound)
	_, err = t.subscriber.Pull(t.ctx, &pubsubpb.PullRequest{Subscription: missing, MaxMessages: 1})
	t.code("pull", err, codes.NotFound)
	t.code("acknowledge", t.tryAck(missing, "a"), codes.NotFound)
	t.code("extend", t.tryExtend(missing, 20, "a"), codes.NotFound)
	t.code("stream", t.stream(missing).end(), codes.NotFound)
}

func deadlineIsLimited(t *trial) {
	topic := t.topic()
	for _, seconds := range []int32{-1, 9, 601} {
		_, err := t.createSubscription(&pubsubpb.Subscription{Name: t.name("subscriptions"), Topic: topic, AckDeadlineSeconds: seconds})
		t.checkf(err != nil, "a deadline of %d s is accepted", seconds)
		t.code("refusal", err, codes.InvalidArgument)
	}
	for _, seconds := range []int32{10, 600} {
		t.subscriptionWith(&pubsubpb.Subscription{Topic: topic, AckDeadlineSeconds: seconds})
	}
}

func retentionIsLimited(t *trial) {
	topic := t.topic()
	for _, d := range []time.Duration{10*time.Minute - time.Second, 31*day + time.Second} {
		_, err := t.createSubscription(&pubsubpb.Subscription{
			Name: t.name("subscriptions"), Topic: topic, MessageRetentionDuration: durationpb.New(d),
		})
		t.code("retention "+d.String(), err, codes.InvalidArgument)
	}
	for _, d := range []time.Duration{10 * time.Minute, 31 * day} {
		t.subscriptionWith(&pubsubpb.Subscription{Topic: topic, MessageRetentionDuration: durationpb.New(d)})
	}
}

func expirationIsLimited(t *trial) {
	topic := t.topic()
	_, err := t.createSubscription(&pubsubpb.Subscription{
		Name: t.name("subscriptions"), Topic: topic, MessageRetentionDuration: durationpb.New(time.Hour),
		ExpirationPolicy: &pubsubpb.ExpirationPolicy{Ttl: durationpb.New(day - time.Second)},
	})
	t.code("expiry after less than a day", err, codes.InvalidArgument)
	never := t.getSubscription(t.subscriptionWith(&pubsubpb.Subscription{Topic: topic, ExpirationPolicy: &pubsubpb.ExpirationPolicy{}}))
	t.checkf(never.GetExpirationPolicy() != nil, "the policy without a time is not kept")
	t.checkf(never.GetExpirationPolicy().GetTtl() == nil, "the policy without a time has become %v", never.GetExpirationPolicy())
}

func subscriptionsAreListed(t *trial) {
	const size = 2
	topic := t.topic()
	want := []string{t.subscription(topic), t.subscription(topic), t.subscription(topic), t.subscription(topic), t.subscription(topic)}
	t.listed(size, want, func(token string) (names []string, next string, err error) {
		response, err := t.subscriber.ListSubscriptions(t.ctx,
			&pubsubpb.ListSubscriptionsRequest{Project: "projects/" + t.project, PageSize: size, PageToken: token})
		for _, s := range response.GetSubscriptions() {
			names = append(names, s.GetName())
		}
		return names, response.GetNextPageToken(), err
	})
}

func subscriptionIsDeleted(t *trial) {
	topic := t.topic()
	subscription := t.subscription(topic)
	t.publish(topic, text("a"))
	t.deleteSubscription(subscription)
	_, err := t.subscriber.GetSubscription(t.ctx, &pubsubpb.GetSubscriptionRequest{Subscription: subscription})
	t.code("get", err, codes.NotFound)
	_, err = t.subscriber.Pull(t.ctx, &pubsubpb.PullRequest{Subscription: subscription, MaxMessages: 1})
	t.code("pull", err, codes.NotFound)
	_, err = t.createSubscription(&pubsubpb.Subscription{Name: subscription, Topic: topic})
	t.must(err)
	s := t.stream(subscription)
	t.publish(topic, text("b"))
	s.want("b")
	s.quiet(silence)
}

func subscriptionIsDetached(t *trial) {
	topic := t.topic()
	subscription := t.subscription(topic)
	t.publish(topic, text("a"))
	_, err := t.publisher.DetachSubscription(t.ctx, &pubsubpb.DetachSubscriptionRequest{Subscription: subscription})
	t.must(err)
	t.checkf(t.getSubscription(subscription).GetDetached(), "it does not say that it is detached")
	ctx, cancel := t.patiently()
	defer cancel()
	_, err = t.subscriber.Pull(ctx, &pubsubpb.PullRequest{Subscription: subscription, MaxMessages: 1})
	t.code("pull", err, codes.FailedPrecondition)
	t.code("stream", t.stream(subscription).end(), codes.FailedPrecondition)
}
