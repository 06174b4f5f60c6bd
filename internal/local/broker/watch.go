package broker

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// lookAgain is the longest time until Watch notices that a resource was deleted on a running
// broker. Watch checks a broker that was away as soon as the broker is back.
const lookAgain = 5 * time.Second

// Missing returns the full names of those [Topology] resources that the local broker at addr does
// not have. A subscription of another topic or of a deleted one, or with another filter, counts as
// missing. Like [Provision], it connects only to that address.
func Missing(ctx context.Context, addr, project string) ([]string, error) {
	conn, err := connect(addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return missing(ctx, conn, project)
}

// Watch provisions the local broker at addr whenever a resource is missing there, until ctx ends.
// The official emulator needs this, because it loses its state when it restarts. Watch waits for a
// broker that is away. Watch calls the function said when everything is there for the first time,
// after each provisioning that created something, and for each error. After an error Watch
// continues.
//
// A message that is published after the creation of a topic, but before the creation of the topic's
// subscription, reaches no subscriber. This window is one call long.
func Watch(ctx context.Context, addr, project string, said func(Provisioned, error)) error {
	conn, err := connect(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	for first := true; ctx.Err() == nil; {
		made, err := complete(ctx, conn, project)
		if ctx.Err() == nil && (err != nil || first || len(made.Created) > 0) {
			said(made, err)
			first = first && err != nil
		}
		idle, cancel := context.WithTimeout(ctx, lookAgain)
		conn.WaitForStateChange(idle, connectivity.Ready)
		cancel()
	}
	return nil
}

func complete(ctx context.Context, conn *grpc.ClientConn, project string) (Provisioned, error) {
	absent, err := missing(ctx, conn, project)
	if err != nil || len(absent) == 0 {
		return Provisioned{}, err
	}
	return provision(ctx, conn, project)
}

func missing(ctx context.Context, conn *grpc.ClientConn, project string) (absent []string, err error) {
	topics, subscriptions := fullTopology(project)
	look := func(name string, err error) error {
		switch status.Code(err) {
		case codes.OK:
		case codes.NotFound:
			absent = append(absent, name)
		default:
			return fmt.Errorf("look for %s: %w", name, err)
		}
		return nil
	}
	publisher, subscriber := pubsubpb.NewPublisherClient(conn), pubsubpb.NewSubscriberClient(conn)
	for _, name := range topics {
		_, err := publisher.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: name})
		if err := look(name, err); err != nil {
			return nil, err
		}
	}
	for _, s := range subscriptions {
		got, err := subscriber.GetSubscription(ctx, &pubsubpb.GetSubscriptionRequest{Subscription: s.GetName()})
		if err := look(s.GetName(), err); err != nil {
			return nil, err
		}
		if err == nil && (got.GetTopic() != s.GetTopic() || got.GetFilter() != s.GetFilter()) {
			absent = append(absent, s.GetName()) // Provision says why
		}
	}
	return absent, nil
}
