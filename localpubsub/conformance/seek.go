package conformance

import (
	"slices"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func seeking() area {
	source := page("replay-overview")
	return area{"seek", []Behaviour{
		{Name: "a seek to the past brings back acknowledged messages that are retained", Source: source, try: seekReplays},
		{Name: "a seek brings back the messages published from its time on", Source: source, try: seekSplits},
		{Name: "a seek to the past without retention brings back unacknowledged messages only", Source: source, try: seekNeedsRetention},
		{Name: "a seek to the future discards the messages published before", Source: source, try: seekDiscards},
		{Name: "a seek on an ordered subscription replays keys in order", Source: page("ordering"), try: seekKeepsOrder},
		{Name: "messages that a topic retains can be replayed without the subscription's retention", Source: source, try: seekUsesTopicRetention},
		{Name: "a new subscription can seek to messages that its topic retained before", Source: source, try: seekBeforeCreation},
		{Name: "a seek without a target is refused", Source: rpc("SeekRequest"), try: seekNeedsTarget},
		{Name: "a seek on or to a missing resource is not found", Source: page("reference/error-codes"), try: seekNeedsResources},
	}}
}

func (t *trial) seek(subscription string, to time.Time) {
	_, err := t.subscriber.Seek(t.ctx, &pubsubpb.SeekRequest{
		Subscription: subscription, Target: &pubsubpb.SeekRequest_Time{Time: timestamppb.New(to)},
	})
	t.must(err)
}

func published(d delivery) time.Time { return d.GetMessage().GetPublishTime().AsTime() }

// past returns a time before the publish times of all messages of a trial. The shortest possible
// retention of a subscription goes back further than this time.
func past() time.Time { return time.Now().Add(-5 * time.Minute) }

func (t *trial) retaining(topic string) *stream {
	return t.stream(t.subscriptionWith(&pubsubpb.Subscription{Topic: topic, RetainAckedMessages: true}))
}

func seekReplays(t *trial) {
	topic := t.topic()
	s := t.retaining(topic)
	t.publish(topic, texts("", "a", "b", "c")...)
	s.ack(s.next(3)...)
	t.seek(s.subscription, past())
	s.ack(s.wantSet("a", "b", "c")...)
	s.quiet(silence)
}

func seekSplits(t *trial) {
	topic := t.topic()
	s := t.retaining(topic)
	t.publish(topic, text("a"))
	a := s.one()
	t.await(20 * time.Millisecond) // the service counts publish times in milliseconds
	t.publish(topic, text("b"))
	b := s.one()
	s.ack(a, b)
	t.seek(s.subscription, published(a).Add(published(b).Sub(published(a))/2))
	s.ack(s.want("b")...)
	s.quiet(silence)
}

func seekNeedsRetention(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	t.publish(topic, texts("", "a", "b", "c")...)
	all := s.next(3)
	s.ack(all[:2]...)
	t.seek(s.subscription, past())
	s.want(all[2].data())
	s.quiet(silence)
}

func seekDiscards(t *trial) {
	topic := t.topic()
	subscription, other := t.subscription(topic), t.stream(t.subscription(topic))
	t.publish(topic, texts("", "a", "b", "c")...)
	last := slices.MaxFunc(other.next(3), func(a, b delivery) int { return published(a).Compare(published(b)) })
	// The service counts publish times in milliseconds. A seek to the exact publish time of a
	// message discards this message, too. So the seek goes to the next millisecond.
	t.seek(subscription, published(last).Add(time.Millisecond))
	t.await(20 * time.Millisecond)
	t.publish(topic, text("d"))
	s := t.stream(subscription)
	s.want("d")
	s.quiet(silence)
}

func seekKeepsOrder(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscriptionWith(&pubsubpb.Subscription{Topic: topic, RetainAckedMessages: true, EnableMessageOrdering: true}))
	t.publish(topic, texts("key", "a", "b")...)
	t.publish(topic, texts("key", "c", "d")...)
	s.ack(s.want("a", "b", "c", "d")...)
	t.seek(s.subscription, past())
	s.ack(s.want("a", "b", "c", "d")...)
	s.quiet(silence)
}

func seekUsesTopicRetention(t *trial) {
	topic := t.topicWith(&pubsubpb.Topic{MessageRetentionDuration: durationpb.New(time.Hour)}).GetName()
	s := t.stream(t.subscription(topic))
	t.publish(topic, texts("", "a", "b")...)
	s.ack(s.next(2)...)
	t.seek(s.subscription, past())
	s.wantSet("a", "b")
}

func seekBeforeCreation(t *trial) {
	topic := t.topicWith(&pubsubpb.Topic{MessageRetentionDuration: durationpb.New(time.Hour)}).GetName()
	t.publish(topic, texts("", "a", "b")...)
	s := t.stream(t.subscription(topic))
	t.seek(s.subscription, past())
	s.wantSet("a", "b")
}

func seekNeedsTarget(t *trial) {
	_, err := t.subscriber.Seek(t.ctx, &pubsubpb.SeekRequest{Subscription: t.subscription(t.topic())})
	t.code("seek", err, codes.InvalidArgument)
}

func seekNeedsResources(t *trial) {
	_, err := t.subscriber.Seek(t.ctx, &pubsubpb.SeekRequest{
		Subscription: t.name("subscriptions"), Target: &pubsubpb.SeekRequest_Time{Time: timestamppb.Now()},
	})
	t.code("seek on a missing subscription", err, codes.NotFound)
	_, err = t.subscriber.Seek(t.ctx, &pubsubpb.SeekRequest{
		Subscription: t.subscription(t.topic()), Target: &pubsubpb.SeekRequest_Snapshot{Snapshot: t.name("snapshots")},
	})
	t.code("seek to a missing snapshot", err, codes.NotFound)
}
