package localbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const (
	// callTime bounds one call to the broker, which may still be starting.
	callTime = 20 * time.Second
	// connectTime bounds one attempt to connect.
	connectTime = 2 * time.Second
)

// reconnect is impatient: who publishes to a broker that has forgotten everything
// should find it provisioned.
var reconnect = backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 200 * time.Millisecond}

// Provisioned is what [Provision] found and made, as full resource names.
type Provisioned struct {
	Created, Existing []string
}

// Provision creates the [Topology] in the project on the local broker at addr
// (host:port). It talks to that address only, in plain text, whatever the
// environment says, so it can never touch the real service. What exists already
// is left as it is; so it can be run again, also after an error.
func Provision(ctx context.Context, addr, project string) (Provisioned, error) {
	conn, err := connect(addr)
	if err != nil {
		return Provisioned{}, err
	}
	defer conn.Close()
	return provision(ctx, conn, project)
}

func connect(addr string) (*grpc.ClientConn, error) {
	if addr == "" {
		return nil, errors.New("provision: no address of a local broker: set PUBSUB_EMULATOR_HOST")
	}
	// Looked up for each attempt: a restarted container may have another address.
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: connectTime}))
	if err != nil {
		return nil, fmt.Errorf("provision %s: %w", addr, err)
	}
	return conn, nil
}

func provision(ctx context.Context, conn *grpc.ClientConn, project string) (p Provisioned, err error) {
	if err := p.all(ctx, conn, project); err != nil {
		return p, fmt.Errorf("provision %s: %w", conn.Target(), err)
	}
	return p, nil
}

// all creates each subscription right behind its topic: it gets nothing of what
// was published before it.
func (p *Provisioned) all(ctx context.Context, conn *grpc.ClientConn, project string) error {
	topics, subscriptions := fullTopology(project)
	publisher, subscriber := pubsubpb.NewPublisherClient(conn), pubsubpb.NewSubscriberClient(conn)
	for _, topic := range topics {
		err := p.one(ctx, topic, func(ctx context.Context) error {
			_, err := publisher.CreateTopic(ctx, &pubsubpb.Topic{Name: topic})
			return err
		})
		if err != nil {
			return err
		}
		for _, s := range subscriptions {
			if s.GetTopic() != topic {
				continue
			}
			err := p.one(ctx, s.GetName(), func(ctx context.Context) error {
				_, err := subscriber.CreateSubscription(ctx, s)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Provisioned) one(ctx context.Context, name string, create func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	switch err := create(ctx); status.Code(err) {
	case codes.OK:
		p.Created = append(p.Created, name)
	case codes.AlreadyExists:
		p.Existing = append(p.Existing, name)
	default:
		return fmt.Errorf("create %s: %w", name, err)
	}
	return nil
}
