// Package pubsubtest has a broker for Example functions. go test gives such a function no
// testing.TB. Therefore the example closes its broker, and a failure of this package panics.
package pubsubtest

import (
	"context"
	"errors"
	"fmt"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/localpubsub"
)

// Broker is a local Pub/Sub with a client of the project demo.
type Broker struct {
	*pubsub.Client

	server *localpubsub.Server
}

// NewExample starts a broker with a subscription and its topic.
func NewExample(ctx context.Context, subscription *pubsubpb.Subscription) *Broker {
	b, err := start(ctx, subscription)
	if err != nil {
		panic(fmt.Errorf("pubsubtest: %w", err)) //nolint:forbidigo // an example has no testing.TB to fail
	}
	return b
}

func start(ctx context.Context, subscription *pubsubpb.Subscription) (*Broker, error) {
	server, err := localpubsub.Start(localpubsub.Options{})
	if err != nil {
		return nil, err
	}
	client, err := pubsub.NewClient(ctx, "demo", option.WithEndpoint(server.Addr()), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	if err != nil {
		return nil, err
	}
	if _, err := client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: subscription.GetTopic()}); err != nil {
		return nil, err
	}
	if _, err := client.SubscriptionAdminClient.CreateSubscription(ctx, subscription); err != nil {
		return nil, err
	}
	return &Broker{client, server}, nil
}

// Close closes the client and the broker.
func (b *Broker) Close() {
	if err := errors.Join(b.Client.Close(), b.server.Close()); err != nil {
		panic(fmt.Errorf("pubsubtest: %w", err)) //nolint:forbidigo // an example has no testing.TB to fail
	}
}
