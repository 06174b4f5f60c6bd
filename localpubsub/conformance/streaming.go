package conformance

import (
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
)

// clientSource is the only public source for some behaviours. A client relies on them, but the
// reference does not document them.
const clientSource = "https://github.com/googleapis/google-cloud-go/blob/main/pubsub/v2/iterator.go"

func streaming() area {
	source := rpc("StreamingPullRequest")
	return area{"streams", []Behaviour{
		{
			Name: "each response of a stream reports whether its subscription is ordered and exactly-once",
			// If a response has neither of the two properties, the client assumes that both are
			// off. Then the client runs the callbacks of one key concurrently.
			Source: clientSource, try: streamReportsProperties,
		},
		{
			Name: "a keep-alive ping on an idle stream is answered",
			// The client closes a stream if its pings get no answer.
			Source: clientSource, try: streamAnswersPings,
		},
		{Name: "a stream without a subscription is refused", Source: source, try: streamNeedsSubscription},
		{Name: "a stream's acknowledgement deadline is between 10 and 600 seconds", Source: source, try: streamDeadlineIsLimited},
		{Name: "flow control can be set in a stream's first request only", Source: source, try: streamLimitsAreFinal},
		{Name: "an acknowledgement on the stream counts", Source: source, try: streamAcknowledges},
		{Name: "a zero deadline on the stream makes the message come again", Source: source, try: streamNacks},
		{Name: "a new deadline on the stream counts", Source: source, try: streamExtends},
		{Name: "deadlines and their ids on a stream must be as many", Source: source, try: streamPairsDeadlines},
		{Name: "a negative deadline on a stream ends it", Source: source, try: streamRefusesNegativeDeadline},
		{Name: "a malformed acknowledgement id on a stream ends it", Source: source, try: streamRefusesMalformedID},
		{Name: "a stream ends when its subscription is deleted", Source: page("reference/error-codes"), try: streamEndsWithSubscription},
		{Name: "streams of one subscription share its messages", Source: page("pull"), try: streamsShare},
		{Name: "an idle stream gets messages that are published later", Source: page("pull"), try: streamGetsLater},
	}}
}

func streamReportsProperties(t *trial) {
	topic := t.topic()
	for _, want := range []struct{ ordered, exactly bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		s := t.stream(t.subscriptionWith(&pubsubpb.Subscription{
			Topic: topic, EnableMessageOrdering: want.ordered, EnableExactlyOnceDelivery: want.exactly,
		}))
		for range 3 {
			t.publish(topic, text("a"))
			for messages := 0; messages == 0; {
				response := s.response()
				messages = len(response.GetReceivedMessages())
				properties := response.GetSubscriptionProperties()
				equal(t, "ordering", properties.GetMessageOrderingEnabled(), want.ordered)
				equal(t, "exactly-once delivery", properties.GetExactlyOnceDeliveryEnabled(), want.exactly)
			}
		}
	}
}

func streamAnswersPings(t *trial) {
	topic := t.topic()
	s := t.open(&pubsubpb.StreamingPullRequest{Subscription: t.subscription(topic), ProtocolVersion: 1})
	t.publish(topic, text("a"))
	s.ack(s.want("a")...)
	s.quiet(silence) // after this, a server no longer sends the empty response that may come first
	for range 2 {
		s.send(&pubsubpb.StreamingPullRequest{})
		answer := s.response()
		equal(t, "number of messages in the answer", len(answer.GetReceivedMessages()), 0)
	}
}

func streamNeedsSubscription(t *trial) {
	t.code("end of the stream", t.open(&pubsubpb.StreamingPullRequest{}).end(), codes.InvalidArgument)
}

func streamDeadlineIsLimited(t *trial) {
	subscription := t.subscription(t.topic())
	for _, seconds := range []int32{9, 601} {
		s := t.open(&pubsubpb.StreamingPullRequest{Subscription: subscription, StreamAckDeadlineSeconds: seconds})
		t.code(fmt.Sprintf("end of a stream with %d s", seconds), s.end(), codes.InvalidArgument)
	}
}

func streamLimitsAreFinal(t *trial) {
	s := t.stream(t.subscription(t.topic()))
	s.send(&pubsubpb.StreamingPullRequest{MaxOutstandingMessages: 5})
	t.code("end of the stream", s.end(), codes.InvalidArgument)
}

func streamAcknowledges(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	t.publish(topic, text("a"))
	a := s.one()
	t.extend(s.subscription, ackSeconds, a)
	s.send(&pubsubpb.StreamingPullRequest{AckIds: []string{a.GetAckId()}})
	s.quiet(ackTime)
}

func streamNacks(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	t.publish(topic, text("a"))
	a := s.one()
	s.send(&pubsubpb.StreamingPullRequest{ModifyDeadlineAckIds: []string{a.GetAckId()}, ModifyDeadlineSeconds: []int32{0}})
	s.want("a")
}

func streamExtends(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	t.publish(topic, text("a"), text("b"))
	both := s.next(2)
	asked := time.Now()
	s.send(&pubsubpb.StreamingPullRequest{ModifyDeadlineAckIds: ackIDs(both), ModifyDeadlineSeconds: []int32{2, 3}})
	for _, d := range s.next(2) {
		wait := 2 * time.Second
		if d.data() == both[1].data() {
			wait = 3 * time.Second
		}
		t.notBefore(d.at, asked, wait)
	}
}

func streamPairsDeadlines(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	t.publish(topic, text("a"))
	s.send(&pubsubpb.StreamingPullRequest{ModifyDeadlineAckIds: []string{s.one().GetAckId()}, ModifyDeadlineSeconds: []int32{20, 30}})
	t.code("end of the stream", s.end(), codes.InvalidArgument)
}

func streamRefusesNegativeDeadline(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	t.publish(topic, text("a"))
	s.send(&pubsubpb.StreamingPullRequest{ModifyDeadlineAckIds: []string{s.one().GetAckId()}, ModifyDeadlineSeconds: []int32{-1}})
	t.code("end of the stream", s.end(), codes.InvalidArgument)
}

func streamRefusesMalformedID(t *trial) {
	s := t.stream(t.subscription(t.topic()))
	s.send(&pubsubpb.StreamingPullRequest{AckIds: []string{"no such thing"}})
	t.code("end of the stream", s.end(), codes.InvalidArgument)
}

func streamEndsWithSubscription(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	t.publish(topic, text("a"))
	s.want("a") // so the stream is open
	t.deleteSubscription(s.subscription)
	t.code("end of the stream", s.end(), codes.NotFound)
}

func streamsShare(t *trial) {
	const count = 40
	topic := t.topic()
	subscription := t.subscription(topic)
	a, b := t.stream(subscription), t.stream(subscription)
	messages := make([]*pubsubpb.PubsubMessage, count)
	want := make([]string, count)
	for i := range messages {
		want[i] = fmt.Sprint(i)
		messages[i] = text(want[i])
	}
	t.publish(topic, messages...)
	ofA, ofB := both(a, b, count)
	t.sameSet("messages of both streams", append(data(ofA), data(ofB)...), want)
	a.quiet(silence)
	b.quiet(silence)
}

func streamGetsLater(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	for _, data := range []string{"a", "b", "c"} {
		s.quiet(100 * time.Millisecond)
		t.publish(topic, text(data))
		s.want(data)
	}
}
