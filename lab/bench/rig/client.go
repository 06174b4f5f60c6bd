package rig

import (
	"context"
	"errors"
	"math"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	project = "bench"
	// Topic is the id of the measured topic, and of its only subscription.
	Topic = "measured"
	// ackDeadline is so long that no message is delivered a second time during a run.
	ackDeadline = 10 * time.Minute
	// NoListener is an address at which nothing listens.
	NoListener = "127.0.0.1:1"
)

// DialBroker returns a client like the one that the library makes for a local broker. But it does
// not use the environment variable for the address, because this process has clients of several
// brokers in turn. Closing the client closes its connection.
func DialBroker(ctx context.Context, addr string, options ...grpc.DialOption) (*pubsub.Client, error) {
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.WaitForReady(true)))
	conn, err := grpc.NewClient(addr, options...)
	if err != nil {
		return nil, err
	}
	client, err := pubsub.NewClient(ctx, project, option.WithGRPCConn(conn))
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return client, nil
}

// UnreachableClient returns a client that has no server. It is for code that needs a client but
// gets its messages from another source.
func UnreachableClient(ctx context.Context) (*pubsub.Client, error) {
	return DialBroker(ctx, NoListener)
}

// CreateTopic creates a topic without a subscription.
func CreateTopic(ctx context.Context, client *pubsub.Client, name string) error {
	_, err := client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: TopicName(name)})
	return err
}

// Subscribe creates the subscription of a topic. Both have the same name.
func Subscribe(ctx context.Context, client *pubsub.Client, name string, ordered bool) error {
	_, err := client.SubscriptionAdminClient.CreateSubscription(ctx, &pubsubpb.Subscription{
		Name: SubscriptionName(name), Topic: TopicName(name),
		AckDeadlineSeconds: int32(ackDeadline.Seconds()), EnableMessageOrdering: ordered,
	})
	return err
}

// Publish sends messages of one key to the measured topic, in one request.
func Publish(ctx context.Context, client *pubsub.Client, messages ...*pubsubpb.PubsubMessage) error {
	_, err := client.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{Topic: TopicName(Topic), Messages: messages})
	return err
}

// TopicName returns the full name of a topic.
func TopicName(id string) string { return "projects/" + project + "/topics/" + id }

// SubscriptionName returns the full name of a subscription.
func SubscriptionName(id string) string { return "projects/" + project + "/subscriptions/" + id }
