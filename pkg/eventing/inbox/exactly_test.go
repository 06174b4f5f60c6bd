package inbox

import (
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/localpubsub"
)

// exactly returns a client of an exactly-once subscription, whose server's clock is
// the test's to put forward.
func exactly(t *testing.T) (*pubsub.Client, *localpubsub.Clock) {
	t.Helper()
	clock := localpubsub.NewClock()
	server, err := localpubsub.Start(localpubsub.Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	conn, err := grpc.NewClient(server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	client, err := pubsub.NewClient(t.Context(), "test", option.WithGRPCConn(conn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if _, err := client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic}); err != nil {
		t.Fatal(err)
	}
	_, err = client.SubscriptionAdminClient.CreateSubscription(t.Context(), &pubsubpb.Subscription{
		Name: "projects/test/subscriptions/" + subscription, Topic: topic, EnableExactlyOnceDelivery: true, AckDeadlineSeconds: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	return client, clock
}

// An ack of a lease that was lost is refused: it is said, and the message, which
// comes again, has no second effect.
func TestARefusedAckIsNoticed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	client, clock := exactly(t)
	begun, goOn := make(chan struct{}), make(chan struct{})
	b.setSpoil(func(eventing.Event) error {
		close(begun)
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
	<-begun
	clock.Advance(time.Hour)
	close(goOn)
	deadline, tick := time.After(patience), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for heard.n.Load() == 0 {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("nobody says that the ack was refused")
		}
	}
	b.eventually(t, 1, withDone)
	if n := b.count(t, effects, "a"); n != 1 {
		t.Errorf("%d effects", n)
	}
}
