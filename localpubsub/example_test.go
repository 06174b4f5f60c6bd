package localpubsub_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/status"

	"example.com/lockstep/localpubsub"
)

const (
	project  = "demo"
	videos   = "projects/demo/topics/videos"
	indexing = "projects/demo/subscriptions/indexing"
)

// A program that uses Google's client library finds the server by the variable
// PUBSUB_EMULATOR_HOST.
func ExampleStart() {
	ctx := context.Background()
	server, err := localpubsub.Start(localpubsub.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	os.Setenv("PUBSUB_EMULATOR_HOST", server.Addr())

	client, err := pubsub.NewClient(ctx, "demo")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	topic, err := client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: "projects/demo/topics/videos"})
	if err != nil {
		fmt.Println(err)
		return
	}
	subscription, err := client.SubscriptionAdminClient.CreateSubscription(ctx, &pubsubpb.Subscription{
		Name: "projects/demo/subscriptions/indexing", Topic: topic.GetName(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	publisher := client.Publisher(topic.GetName())
	defer publisher.Stop()
	if _, err := publisher.Publish(ctx, &pubsub.Message{Data: []byte("hello")}).Get(ctx); err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(ctx)
	err = client.Subscriber(subscription.GetName()).Receive(ctx, func(_ context.Context, m *pubsub.Message) {
		fmt.Printf("%s\n", m.Data)
		m.Ack()
		stop()
	})
	fmt.Println(err)
	// Output:
	// hello
	// <nil>
}

// On an ordered subscription, a redelivery of one message brings all later ones
// of its key again, and no message of another key.
func ExampleServer_orderingKeys() {
	server, client := demo(localpubsub.Options{}, &pubsubpb.Subscription{EnableMessageOrdering: true})
	defer server.Close()
	defer client.Close()

	publish(client, "k1", "a1")
	publish(client, "k1", "a2")
	publish(client, "k1", "a3")
	publish(client, "k2", "b1")
	got := pull(client)
	fmt.Println("nack of a2, ack of a1 and a3")
	nack(client, got[1:2])
	acknowledge(client, []*pubsubpb.ReceivedMessage{got[0], got[2]})
	pull(client)
	// Output:
	// published "a1": OK
	// published "a2": OK
	// published "a3": OK
	// published "b1": OK
	// received ["a1" "a2" "a3" "b1"]
	// nack of a2, ack of a1 and a3
	// acknowledged: OK
	// received ["a2" "a3"]
}

// A still clock moves by Advance only. A test of a week's retention takes
// milliseconds.
func ExampleClock_Advance() {
	clock := localpubsub.NewStillClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	server, client := demo(localpubsub.Options{Clock: clock}, &pubsubpb.Subscription{})
	defer server.Close()
	defer client.Close()

	publish(client, "", "hello")
	clock.Advance(7*24*time.Hour - time.Second)
	nack(client, pull(client))
	clock.Advance(time.Second)
	pull(client)
	fmt.Println(clock.Now())
	// Output:
	// published "hello": OK
	// received ["hello"]
	// received []
	// 2026-01-08 12:00:00 +0000 UTC
}

// Forget is the loss of a broker's memory: its users find no topic and create
// it again.
func ExampleServer_Forget() {
	server, client := demo(localpubsub.Options{}, &pubsubpb.Subscription{})
	defer server.Close()
	defer client.Close()

	publish(client, "", "before")
	server.Forget()
	publish(client, "", "after")
	// Output:
	// published "before": OK
	// published "after": NotFound
}

// demo starts a server with one topic and one subscription. ExampleStart shows
// its steps.
func demo(options localpubsub.Options, subscription *pubsubpb.Subscription) (*localpubsub.Server, *pubsub.Client) {
	ctx := context.Background()
	server, err := localpubsub.Start(options)
	if err != nil {
		panic(err)
	}
	os.Setenv("PUBSUB_EMULATOR_HOST", server.Addr())
	client, err := pubsub.NewClient(ctx, project)
	if err != nil {
		panic(err)
	}
	if _, err := client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: videos}); err != nil {
		panic(err)
	}
	subscription.Name, subscription.Topic = indexing, videos
	if _, err := client.SubscriptionAdminClient.CreateSubscription(ctx, subscription); err != nil {
		panic(err)
	}
	return server, client
}

func publish(client *pubsub.Client, key, text string) {
	_, err := client.TopicAdminClient.Publish(context.Background(), &pubsubpb.PublishRequest{
		Topic: videos, Messages: []*pubsubpb.PubsubMessage{{OrderingKey: key, Data: []byte(text)}},
	})
	fmt.Fprintf(os.Stdout, "published %q: %v\n", text, status.Code(err))
}

// pull takes the messages that are available now.
func pull(client *pubsub.Client) []*pubsubpb.ReceivedMessage {
	answer, err := client.SubscriptionAdminClient.Pull(context.Background(), &pubsubpb.PullRequest{
		Subscription: indexing, MaxMessages: 10, ReturnImmediately: true, //nolint:staticcheck // no wait wanted
	})
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(os.Stdout, "received %q\n", texts(answer.GetReceivedMessages()))
	return answer.GetReceivedMessages()
}

func acknowledge(client *pubsub.Client, messages []*pubsubpb.ReceivedMessage) {
	err := client.SubscriptionAdminClient.Acknowledge(context.Background(), &pubsubpb.AcknowledgeRequest{
		Subscription: indexing, AckIds: ackIDs(messages),
	})
	fmt.Fprintf(os.Stdout, "acknowledged: %v\n", status.Code(err))
}

func nack(client *pubsub.Client, messages []*pubsubpb.ReceivedMessage) {
	if err := client.SubscriptionAdminClient.ModifyAckDeadline(context.Background(), &pubsubpb.ModifyAckDeadlineRequest{
		Subscription: indexing, AckIds: ackIDs(messages), AckDeadlineSeconds: 0,
	}); err != nil {
		panic(err)
	}
}
