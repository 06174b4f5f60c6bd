package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/localpubsub"
	"example.com/lockstep/pkg/eventing"
)

// exactly returns a client of an exactly-once subscription and of its dead letters. The
// test puts the server's clock forward.
func exactly(t *testing.T) (*pubsub.Client, *localpubsub.Clock) {
	t.Helper()
	clock := localpubsub.NewClock()
	server, err := localpubsub.Start(localpubsub.Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	conn, err := grpc.NewClient(server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(20<<20)))
	if err != nil {
		t.Fatal(err)
	}
	client, err := pubsub.NewClient(t.Context(), "test", option.WithGRPCConn(conn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	for name, from := range map[string]string{subscription: topic, subscription + ".dlq": deadTopic} {
		if _, err := client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: from}); err != nil {
			t.Fatal(err)
		}
		createExactly(t, client, name, from)
	}
	return client, clock
}

func createExactly(t *testing.T, client *pubsub.Client, name, from string) {
	t.Helper()
	_, err := client.SubscriptionAdminClient.CreateSubscription(t.Context(), &pubsubpb.Subscription{
		Name: "projects/test/subscriptions/" + name, Topic: from, EnableExactlyOnceDelivery: true, AckDeadlineSeconds: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// An ack of a lease that was lost is refused: it is said, and the message, which
// comes again, has no second effect.
func TestARefusedAckIsNoticed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	client, clock := exactly(t)
	started, goOn := make(chan struct{}), make(chan struct{})
	b.setSpoil(func(eventing.Event) error {
		close(started)
		<-goOn
		return nil
	})
	_, heard := b.run(t, client)
	_, err := client.TopicAdminClient.Publish(t.Context(), &pubsubpb.PublishRequest{
		Topic: topic, Messages: []*pubsubpb.PubsubMessage{event("a", 1).Message()},
	})
	if err != nil {
		t.Fatal(err)
	}
	<-started
	clock.Advance(time.Hour)
	close(goOn)
	pgtest.Until(t, "a log line says that the ack was refused", func() bool { return heard.n.Load() != 0 })
	b.eventually(t, 1, withDone)
	if n := b.count(t, effects, "a"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// The client never answers an ack whose stream has ended with an error that it does not retry. However many
// such acks there are, the refusal of a later ack is noticed soon.
func TestARefusedAckIsNoticedBehindUnansweredAcks(t *testing.T) {
	t.Parallel()
	const unanswered = 20 // at a wait of ackTimeout for each, longer than patience
	b := newBench(t)
	client, clock := exactly(t)
	b.client = client
	var goOn atomic.Pointer[chan struct{}]
	stop := func() (release func()) {
		c := make(chan struct{})
		goOn.Store(&c)
		return func() { close(c) }
	}
	b.setSpoil(func(eventing.Event) error {
		<-*goOn.Load()
		return nil
	})
	release := stop()
	heard := &complaints{of: "ack refused"}
	c := NewConsumer(b.db, client, subscription, b.handler(decode), slog.New(heard), func() {}, Options{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	for i := range unanswered {
		b.publishRaw(t, event(fmt.Sprint("unanswered", i), 1).Message())
	}
	pgtest.Until(t, "all are in hand", func() bool { return c.budget.inHand().messages == unanswered })
	name := &pubsubpb.DeleteSubscriptionRequest{Subscription: "projects/test/subscriptions/" + subscription}
	if err := client.SubscriptionAdminClient.DeleteSubscription(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	pgtest.Until(t, "the stream has ended", func() bool { return c.metrics.pullFailures() > 0 })
	createExactly(t, client, subscription, topic)
	release()
	b.eventually(t, unanswered, withDone)

	release = stop()
	b.publishRaw(t, event("refused", 1).Message())
	pgtest.Until(t, "it is in hand", func() bool { return c.budget.inHand().messages == 1 })
	clock.Advance(time.Hour)
	release()
	pgtest.Until(t, "the refusal is noticed", func() bool { return heard.n.Load() > 0 })
}

// A message at the limits of Pub/Sub has no room for why it is dead. It must find
// its way all the same, or it is tried for ever.
func TestADeadLetterFits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.client, _ = exactly(t)
	c := b.consumer(t)
	const many, large = 100, 10_000_000
	crowded := event("crowded", 1).Message().Attributes
	for i := 0; len(crowded) < many; i++ {
		crowded[fmt.Sprint("_", i)] = "x"
	}
	cut := fmt.Sprintf("cut off, of %d bytes", large-20)
	for name, m := range map[string]struct {
		pubsub.Message

		reason string
	}{
		"crowded": {pubsub.Message{Data: []byte("p"), Attributes: crowded}, "why"},
		"large":   {pubsub.Message{Data: make([]byte, large-20)}, cut},
		"by dead-letter policy": {pubsub.Message{Data: []byte("p"), Attributes: map[string]string{
			"googclient_schemaname": "s", "CloudPubSubDeadLetterSourceDeliveryCount": "5",
		}}, "why"},
	} {
		m.ID = name
		d := &delivery{messages: []*pubsub.Message{&m.Message}}
		if err := c.dead.publish(t.Context(), d, errors.New("why "+strings.Repeat("ü", 1000)), 3); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		pulled, err := b.client.SubscriptionAdminClient.Pull(t.Context(), &pubsubpb.PullRequest{
			Subscription: "projects/test/subscriptions/" + subscription + ".dlq", MaxMessages: 1,
		})
		if err != nil || len(pulled.GetReceivedMessages()) != 1 {
			t.Fatalf("%s: %v, %v", name, pulled, err)
		}
		err = b.client.SubscriptionAdminClient.Acknowledge(t.Context(), &pubsubpb.AcknowledgeRequest{ // else it may come again instead of the next one
			Subscription: "projects/test/subscriptions/" + subscription + ".dlq", AckIds: []string{pulled.GetReceivedMessages()[0].GetAckId()},
		})
		if err != nil {
			t.Fatal(err)
		}
		deadLetter := pulled.GetReceivedMessages()[0].GetMessage()
		if schema, ok := deadLetter.GetAttributes()["googclient_schemaname"]; ok {
			t.Errorf("%s: it claims to be of the schema %q", name, schema)
		}
		for key := range event("a", 1).Message().Attributes {
			if deadLetter.GetAttributes()[key] != m.Attributes[key] {
				t.Errorf("%s: %s is %q, want %q", name, key, deadLetter.GetAttributes()[key], m.Attributes[key])
			}
		}
		if got := deadLetter.GetAttributes(); got[AttrDeadLetterAttempts] != "3" || !strings.Contains(got[AttrDeadLetterReason], m.reason) {
			t.Errorf("%s: after %s attempts because of %.60q", name, got[AttrDeadLetterAttempts], got[AttrDeadLetterReason])
		}
		if !bytes.HasPrefix(m.Data, deadLetter.GetData()) || len(deadLetter.GetData()) < min(len(m.Data), maxDeadLetterBytes) {
			t.Errorf("%s: %d of %d bytes are left", name, len(deadLetter.GetData()), len(m.Data))
		}
	}
}
