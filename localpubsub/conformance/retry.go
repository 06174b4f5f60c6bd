package conformance

import (
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/durationpb"
)

func retries() area {
	source := page("subscription-retry-policy")
	return area{"retry policy", []Behaviour{
		{Name: "a nacked message waits the minimum backoff at least", Source: source, try: backoffIsObeyed},
		{Name: "an expired message waits the minimum backoff too", Source: rpc("Subscription"), try: backoffFollowsExpiry},
		{Name: "the backoff grows with each attempt", Source: source, try: backoffGrows},
		{Name: "the backoff does not grow beyond its maximum", Source: rpc("RetryPolicy"), try: backoffIsCapped},
		{Name: "one message's backoff does not hold up others", Source: source, try: backoffIsOneMessages},
		{Name: "a key waits as a whole while one of its messages backs off", Source: source, try: backoffHoldsKey},
		{Name: "one key's backoff does not hold up other keys", Source: source, try: backoffIsOneKeys},
		{Name: "a retry policy has the documented defaults", Source: rpc("RetryPolicy"), try: backoffDefaults},
		{Name: "a backoff is 600 seconds at most", Source: rpc("RetryPolicy"), try: backoffIsLimited},
	}}
}

// backingOff returns a stream of a new subscription with these backoffs.
func (t *trial) backingOff(topic string, ordered bool, minimum, maximum time.Duration) *stream {
	return t.stream(t.subscriptionWith(&pubsubpb.Subscription{
		Topic: topic, EnableMessageOrdering: ordered,
		RetryPolicy: &pubsubpb.RetryPolicy{MinimumBackoff: durationpb.New(minimum), MaximumBackoff: durationpb.New(maximum)},
	}))
}

func backoffIsObeyed(t *trial) {
	topic := t.topic()
	s := t.backingOff(topic, false, 2*time.Second, 10*time.Second)
	t.publish(topic, text("a"))
	a := s.one()
	nacked := time.Now()
	s.nack(a)
	t.notBefore(s.one().at, nacked, 2*time.Second)
}

func backoffFollowsExpiry(t *trial) {
	topic := t.topic()
	s := t.backingOff(topic, false, 2*time.Second, 10*time.Second)
	t.publish(topic, text("a"))
	a := s.one()
	asked := time.Now()
	s.expire(a) // the lease ends after a second, and then the backoff begins
	t.notBefore(s.one().at, asked, 3*time.Second)
}

func backoffGrows(t *trial) {
	topic := t.topic()
	s := t.backingOff(topic, false, time.Second, time.Minute)
	t.publish(topic, text("a"))
	var gap time.Duration
	for range 4 {
		d := s.one()
		nacked := time.Now()
		s.nack(d)
		again := s.one()
		gap = again.at.Sub(nacked)
		t.notBefore(again.at, nacked, time.Second)
		if gap >= 2*time.Second {
			return
		}
		s.nack(again)
	}
	t.failf("after 8 nacks a message still waits %v only, with a minimum of 1 s", gap.Round(time.Millisecond))
}

func backoffIsCapped(t *trial) {
	topic := t.topic()
	s := t.backingOff(topic, false, time.Second, 2*time.Second)
	t.publish(topic, text("a"))
	for range 6 { // the sixth would wait 32 s, longer than a trial waits
		s.nack(s.one())
	}
	s.one()
}

func backoffIsOneMessages(t *trial) {
	topic := t.topic()
	s := t.backingOff(topic, false, 5*time.Second, 10*time.Second)
	t.publish(topic, text("a"))
	a := s.one()
	nacked := time.Now()
	s.nack(a)
	t.publish(topic, text("b"))
	t.notBefore(s.want("b", "a")[1].at, nacked, 5*time.Second)
}

func backoffHoldsKey(t *trial) {
	topic := t.topic()
	s := t.backingOff(topic, true, 2*time.Second, 10*time.Second)
	t.publish(topic, texts("key", "a", "b")...)
	held := s.want("a", "b")
	nacked := time.Now()
	s.nack(held[0])
	t.publish(topic, texts("key", "c")...)
	t.notBefore(s.want("a", "b", "c")[0].at, nacked, 2*time.Second)
}

func backoffIsOneKeys(t *trial) {
	topic := t.topic()
	s := t.backingOff(topic, true, 5*time.Second, 10*time.Second)
	t.publish(topic, texts("one", "a")...)
	a := s.one()
	nacked := time.Now()
	s.nack(a)
	t.publish(topic, texts("two", "b")...)
	t.notBefore(s.want("b", "a")[1].at, nacked, 5*time.Second)
}

func backoffDefaults(t *trial) {
	name := t.subscriptionWith(&pubsubpb.Subscription{Topic: t.topic(), RetryPolicy: &pubsubpb.RetryPolicy{}})
	got := t.getSubscription(name).GetRetryPolicy()
	equal(t, "minimum", got.GetMinimumBackoff().AsDuration(), 10*time.Second)
	equal(t, "maximum", got.GetMaximumBackoff().AsDuration(), 600*time.Second)
}

func backoffIsLimited(t *trial) {
	topic := t.topic()
	for what, policy := range map[string]*pubsubpb.RetryPolicy{
		"minimum of 601 s": {MinimumBackoff: durationpb.New(601 * time.Second), MaximumBackoff: durationpb.New(601 * time.Second)},
		"maximum of 601 s": {MaximumBackoff: durationpb.New(601 * time.Second)},
		"negative minimum": {MinimumBackoff: durationpb.New(-time.Second)},
	} {
		_, err := t.createSubscription(&pubsubpb.Subscription{Name: t.name("subscriptions"), Topic: topic, RetryPolicy: policy})
		t.refused(what, err)
	}
}
