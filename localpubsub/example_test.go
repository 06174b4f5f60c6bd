package localpubsub_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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

// A fault loses one request of acknowledgements and answers OK. The message
// comes again after its deadline of 10 s, which the clock skips.
func ExampleServer_SetFaults() {
	clock := localpubsub.NewClock()
	server, client := demo(localpubsub.Options{Clock: clock}, &pubsubpb.Subscription{})
	defer server.Close()
	defer client.Close()

	if err := server.SetFaults(1, localpubsub.Fault{Kind: localpubsub.AckLost, Times: 1}); err != nil {
		fmt.Println(err)
		return
	}
	publish(client, "", "hello")
	acknowledge(client, pull(client))
	clock.Advance(10 * time.Second)
	acknowledge(client, pull(client))
	clock.Advance(10 * time.Second)
	pull(client)
	// Output:
	// published "hello": OK
	// received ["hello"]
	// acknowledged: OK
	// received ["hello"]
	// acknowledged: OK
	// received []
}

// A fault answers a publish with an error code: here to each message with the
// ordering key k1, as for an event that the service never accepts.
func ExampleServer_SetFaults_rejectedMessage() {
	server, client := demo(localpubsub.Options{}, &pubsubpb.Subscription{})
	defer server.Close()
	defer client.Close()

	if err := server.SetFaults(1, localpubsub.Fault{Kind: localpubsub.Reject, Key: "k1"}); err != nil {
		fmt.Println(err)
		return
	}
	publish(client, "k1", "bad")
	publish(client, "k2", "good")
	pull(client)
	// Output:
	// published "bad": InvalidArgument
	// published "good": OK
	// received ["good"]
}

// The answer to an accepted publish is lost, once. The client publishes again,
// so the message arrives twice, with two ids.
func ExampleServer_SetFaults_duplicate() {
	server, client := demo(localpubsub.Options{}, &pubsubpb.Subscription{})
	defer server.Close()
	defer client.Close()

	lost := localpubsub.Fault{Kind: localpubsub.AnswerLost, Method: "Publish", Times: 1}
	if err := server.SetFaults(1, lost); err != nil {
		fmt.Println(err)
		return
	}
	publish(client, "", "hello")
	pull(client)
	// Output:
	// published "hello": OK
	// received ["hello" "hello"]
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

// Another process sets the faults over HTTP, at the same port.
func ExampleFaultPlan() {
	server, client := demo(localpubsub.Options{}, &pubsubpb.Subscription{})
	defer server.Close()
	defer client.Close()

	plan, err := json.Marshal(localpubsub.FaultPlan{Seed: 7, Faults: []localpubsub.Fault{
		{Kind: localpubsub.Latency, Method: "Publish", Delay: localpubsub.Duration(5 * time.Millisecond), Probability: 0.5},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	request, err := http.NewRequest(http.MethodPut, "http://"+server.Addr()+"/control/faults", bytes.NewReader(plan))
	if err != nil {
		fmt.Println(err)
		return
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	now, err := io.ReadAll(response.Body)
	fmt.Printf("%s %s%v\n", response.Status, now, err)
	// Output:
	// 200 OK {"seed":7,"faults":[{"kind":"latency","method":"Publish","probability":0.5,"delay":"5ms"}]}
	// <nil>
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
