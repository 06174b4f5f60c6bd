package localbroker

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

// lookAgain is how soon something is missed that was deleted on a broker that
// stayed up. One that went away is looked at as soon as it is back.
const lookAgain = 5 * time.Second

// Missing returns what of the [Topology] the local broker at addr does not have,
// as full resource names. Like [Provision] it talks to that address only.
func Missing(ctx context.Context, addr, project string) ([]string, error) {
	conn, err := connect(addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return missing(ctx, conn, project)
}

// Watch provisions the local broker at addr, and again whenever something is
// missing there, until ctx ends: the official emulator has forgotten everything
// when it restarts. A broker that is away is waited for. said hears of the first time
// that everything is there, of each provisioning that made something, and of each
// error; Watch goes on after those.
//
// What is published in the moment between a topic's creation and that of its
// subscription reaches nobody. That moment is one call long.
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
	look := func(name string, get func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		switch err := get(ctx); status.Code(err) {
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
		err := look(name, func(ctx context.Context) error {
			_, err := publisher.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: name})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, s := range subscriptions {
		err := look(s.GetName(), func(ctx context.Context) error {
			_, err := subscriber.GetSubscription(ctx, &pubsubpb.GetSubscriptionRequest{Subscription: s.GetName()})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return absent, nil
}
