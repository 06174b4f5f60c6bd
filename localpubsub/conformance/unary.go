package conformance

import (
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
)

func unaryPull() area {
	source := rpc("PullRequest")
	return area{"unary pull", []Behaviour{
		{Name: "a pull returns no more than it asked for", Source: source, try: pullObeysMaximum},
		{Name: "a pull for no messages is refused", Source: source, try: pullNeedsMaximum},
		{Name: "a pull waits for a message", Source: source, try: pullWaits},
		{Name: "pulls one after the other get each message once", Source: page("pull"), try: pullsGetAll},
		{Name: "an ordered key is pulled in order", Source: page("ordering"), try: pullsInOrder},
	}}
}

func pullObeysMaximum(t *trial) {
	topic := t.topic()
	subscription := t.subscription(topic)
	t.publish(topic, texts("", "a", "b", "c", "d", "e")...)
	ctx, cancel := t.patiently()
	defer cancel()
	for got := 0; got < 5; {
		response, err := t.subscriber.Pull(ctx, &pubsubpb.PullRequest{Subscription: subscription, MaxMessages: 2})
		t.must(err)
		n := len(response.GetReceivedMessages())
		t.checkf(n <= 2, "a pull for 2 returned %d", n)
		got += n
	}
}

func pullNeedsMaximum(t *trial) {
	subscription := t.subscription(t.topic())
	for _, n := range []int32{0, -1} {
		ctx, cancel := t.patiently()
		_, err := t.subscriber.Pull(ctx, &pubsubpb.PullRequest{Subscription: subscription, MaxMessages: n})
		cancel()
		t.code("pull", err, codes.InvalidArgument)
	}
}

func pullWaits(t *trial) {
	topic := t.topic()
	subscription := t.subscription(topic)
	type answer struct {
		response *pubsubpb.PullResponse
		err      error
	}
	answers := make(chan answer, 1)
	ctx, cancel := t.patiently()
	defer cancel()
	go func() {
		response, err := t.subscriber.Pull(ctx, &pubsubpb.PullRequest{Subscription: subscription, MaxMessages: 1})
		answers <- answer{response, err}
	}()
	select {
	case early := <-answers:
		t.failf("the pull returned at once, with %d messages and %s", len(early.response.GetReceivedMessages()), describe(early.err))
	case <-time.After(time.Second / 5):
	}
	t.publish(topic, text("a"))
	got := <-answers
	t.must(got.err)
	if len(got.response.GetReceivedMessages()) == 0 { // the pull's wait ended, so the next pull gets the message
		t.pull(subscription, 1)
	}
}

func pullsGetAll(t *trial) {
	topic := t.topic()
	subscription := t.subscription(topic)
	want := []string{"a", "b", "c", "d", "e", "f"}
	t.publish(topic, texts("", want...)...)
	all := append(t.pull(subscription, 2), t.pull(subscription, 4)...)
	t.sameSet("messages", data(all), want)
}

func pullsInOrder(t *trial) {
	topic := t.topic()
	subscription := t.ordered(topic)
	t.publish(topic, texts("key", "a", "b", "c", "d", "e", "f")...)
	got := ""
	for len(got) < 6 {
		// A pull may return fewer messages than MaxMessages. The server may hold back the next
		// messages of a key until the messages of this pull are acknowledged. So each round of the
		// loop acknowledges its messages, and the loop pulls until all messages have arrived.
		ctx, cancel := t.patiently()
		response, err := t.subscriber.Pull(ctx, &pubsubpb.PullRequest{Subscription: subscription, MaxMessages: 2})
		cancel()
		t.must(err)
		for _, d := range deliveries(response.GetReceivedMessages()) {
			got += d.data()
			t.ack(subscription, d)
		}
	}
	equal(t, "order", got, "abcdef")
}
