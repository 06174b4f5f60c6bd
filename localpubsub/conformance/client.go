package conformance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
)

func client() area {
	return area{"the Go client", []Behaviour{
		{Name: "the client receives the messages that it publishes", Source: page("publisher"), try: clientReceivesAll},
		{Name: "the client receives the messages of a key in order", Source: page("ordering"), try: clientKeepsOrder},
		{Name: "a handler slower than the deadline gets its message once", Source: page("lease-management"), try: clientExtendsLease},
		{Name: "the client stops receiving when the subscription is deleted", Source: page("reference/error-codes"), try: clientNoticesDeletion},
		{
			Name:   "an acknowledgement's result is success under exactly-once delivery",
			Source: page("exactly-once-delivery"), try: clientGetsResult,
		},
		{Name: "the client reports the attempt under a dead letter policy only", Source: page("handling-failures"), try: clientReportsAttempt},
		{Name: "messages acknowledged before the client stopped do not come again", Source: page("pull"), try: clientFlushesAcks},
	}}
}

// receiving is a running Receive.
type receiving struct {
	t        *trial
	messages chan *pubsub.Message
	stop     context.CancelFunc
	ended    chan error
}

// receive runs Receive of the Go client, and passes on the messages. The trial must acknowledge
// them.
func (t *trial) receive(subscription string) *receiving {
	ctx, cancel := context.WithCancel(t.ctx)
	r := &receiving{t: t, messages: make(chan *pubsub.Message), stop: cancel, ended: make(chan error, 1)}
	subscriber := t.client.Subscriber(subscription)
	go func() {
		r.ended <- subscriber.Receive(ctx, func(ctx context.Context, m *pubsub.Message) {
			select {
			case r.messages <- m:
			case <-ctx.Done():
				m.Nack()
			}
		})
	}()
	t.cleanup(func(context.Context) { cancel() })
	return r
}

func (r *receiving) one() *pubsub.Message {
	select {
	case m := <-r.messages:
		return m
	case err := <-r.ended:
		r.t.failf("Receive ended: %w", err)
	case <-time.After(patience):
		r.t.failf("no message within %v", patience)
	}
	return nil
}

func (r *receiving) end() error {
	select {
	case err := <-r.ended:
		return err
	case <-time.After(patience):
		r.t.failf("Receive still runs after %v", patience)
		return nil
	}
}

func clientReceivesAll(t *trial) {
	const count = 500
	topic := t.topic()
	r := t.receive(t.subscription(topic))
	publisher := t.client.Publisher(topic)
	var results []*pubsub.PublishResult
	for i := range count {
		results = append(results, publisher.Publish(t.ctx, &pubsub.Message{Data: fmt.Append(nil, i)}))
	}
	publisher.Stop()
	want := make([]string, count)
	for i, result := range results {
		id, err := result.Get(t.ctx)
		t.must(err)
		want[i] = id
	}
	var got []string
	for range count {
		m := r.one()
		m.Ack()
		got = append(got, m.ID)
	}
	t.sameSet("messages", got, want)
}

func clientKeepsOrder(t *trial) {
	const keys, count = 3, 40
	topic := t.topic()
	r := t.receive(t.ordered(topic))
	publisher := t.client.Publisher(topic)
	publisher.EnableMessageOrdering = true
	for i := range count {
		for key := range keys {
			publisher.Publish(t.ctx, &pubsub.Message{Data: fmt.Append(nil, i), OrderingKey: fmt.Sprint(key)})
		}
	}
	publisher.Stop()
	next := make(map[string]int)
	for range keys * count {
		m := r.one()
		equal(t, "next of key "+m.OrderingKey, string(m.Data), fmt.Sprint(next[m.OrderingKey]))
		next[m.OrderingKey]++
		m.Ack()
	}
}

func clientExtendsLease(t *trial) {
	topic := t.topic()
	r := t.receive(t.subscriptionWith(&pubsubpb.Subscription{Topic: topic, AckDeadlineSeconds: 10}))
	t.publish(topic, text("a"))
	m := r.one()
	select {
	case <-r.messages:
		t.failf("the message came again while its handler ran")
	case <-time.After(13 * time.Second):
	}
	m.Ack()
}

func clientNoticesDeletion(t *trial) {
	topic := t.topic()
	subscription := t.subscription(topic)
	r := t.receive(subscription)
	t.publish(topic, text("a"))
	r.one().Ack() // now Receive is running
	t.deleteSubscription(subscription)
	t.code("end of Receive", r.end(), codes.NotFound)
}

func clientGetsResult(t *trial) {
	topic := t.topic()
	r := t.receive(t.subscriptionWith(&pubsubpb.Subscription{Topic: topic, EnableExactlyOnceDelivery: true}))
	t.publish(topic, text("a"))
	ctx, cancel := t.patiently()
	defer cancel()
	result, err := r.one().AckWithResult().Get(ctx)
	t.must(err)
	equal(t, "result", result, pubsub.AcknowledgeStatusSuccess)
}

func clientReportsAttempt(t *trial) {
	topic := t.topic()
	plain := t.receive(t.subscription(topic))
	counted := t.receive(t.subscriptionWith(&pubsubpb.Subscription{
		Topic: topic, DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: t.topic(), MaxDeliveryAttempts: attempts},
	}))
	t.publish(topic, text("a"))
	m := plain.one()
	m.Ack()
	t.checkf(m.DeliveryAttempt == nil, "an attempt is given without a policy")
	counted.one().Nack()
	m = counted.one()
	m.Ack()
	t.checkf(m.DeliveryAttempt != nil, "no attempt is given")
	equal(t, "attempt", *m.DeliveryAttempt, 2)
}

func clientFlushesAcks(t *trial) {
	const count = 50
	topic := t.topic()
	subscription := t.subscriptionWith(&pubsubpb.Subscription{Topic: topic, AckDeadlineSeconds: 10})
	for range count {
		t.publish(topic, text("a"))
	}
	ctx, stop := context.WithCancel(t.ctx)
	defer stop()
	var mu sync.Mutex
	acknowledged := 0
	subscriber := t.client.Subscriber(subscription)
	subscriber.ReceiveSettings.MaxDurationPerAckExtension = 10 * time.Second // also for the stream's first lease
	err := subscriber.Receive(ctx, func(_ context.Context, m *pubsub.Message) {
		m.Ack()
		mu.Lock()
		defer mu.Unlock()
		acknowledged++
		if acknowledged == count {
			stop()
		}
	})
	t.must(err)
	t.stream(subscription).quiet(12 * time.Second)
}
