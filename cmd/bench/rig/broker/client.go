package broker

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
	// Subject names the topic that is measured, and its only subscription.
	Subject = "subject"
	// ackDeadline is long: no run has to do with a second delivery.
	ackDeadline = 10 * time.Minute
	// Nobody is an address at which nobody listens.
	Nobody = "127.0.0.1:1"
)

// Dial returns a client as the library makes one of a local broker, but for the
// variable that tells it where: this process has its clients one after the other.
// Whoever closes the client closes its connection.
func Dial(ctx context.Context, addr string, options ...grpc.DialOption) (*pubsub.Client, error) {
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

// Unreachable returns a client that cannot be used: who needs one has messages from
// elsewhere.
func Unreachable(ctx context.Context) (*pubsub.Client, error) { return Dial(ctx, Nobody) }

// CreateTopic creates a topic without a subscription.
func CreateTopic(ctx context.Context, client *pubsub.Client, name string) error {
	_, err := client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: TopicName(name)})
	return err
}

// Subscribe gives a topic its subscription, of the same name.
func Subscribe(ctx context.Context, client *pubsub.Client, name string, ordered bool) error {
	_, err := client.SubscriptionAdminClient.CreateSubscription(ctx, &pubsubpb.Subscription{
		Name: SubscriptionName(name), Topic: TopicName(name),
		AckDeadlineSeconds: int32(ackDeadline.Seconds()), EnableMessageOrdering: ordered,
	})
	return err
}

// Publish sends messages of one key to the topic that is measured, in a request of
// their own.
func Publish(ctx context.Context, client *pubsub.Client, messages ...*pubsubpb.PubsubMessage) error {
	_, err := client.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{Topic: TopicName(Subject), Messages: messages})
	return err
}

// TopicName is the full name of the topic.
func TopicName(id string) string { return "projects/" + project + "/topics/" + id }

// SubscriptionName is the full name of the subscription.
func SubscriptionName(id string) string { return "projects/" + project + "/subscriptions/" + id }
