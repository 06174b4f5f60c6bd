package localbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// callTime bounds one call to the broker, which may still be starting.
const callTime = 20 * time.Second

// Provisioned is what [Provision] found and made, as full resource names.
type Provisioned struct {
	Created, Existing []string
}

// Provision creates the [Topology] in the project on the local broker at addr
// (host:port). It talks to that address only, in plain text, whatever the
// environment says, so it can never touch the real service. What exists already
// is left as it is; so it can be run again, also after an error.
func Provision(ctx context.Context, addr, project string) (Provisioned, error) {
	if addr == "" {
		return Provisioned{}, errors.New("provision: no address of a local broker: set PUBSUB_EMULATOR_HOST")
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return Provisioned{}, fmt.Errorf("provision %s: %w", addr, err)
	}
	defer conn.Close()
	var p Provisioned
	if err := p.all(ctx, conn, "projects/"+project); err != nil {
		return p, fmt.Errorf("provision %s: %w", addr, err)
	}
	return p, nil
}

func (p *Provisioned) all(ctx context.Context, conn *grpc.ClientConn, project string) error {
	topics, subscriptions := Topology()
	topicName := func(id string) string { return project + "/topics/" + id }
	publisher, subscriber := pubsubpb.NewPublisherClient(conn), pubsubpb.NewSubscriberClient(conn)
	for _, id := range topics {
		err := p.one(ctx, topicName(id), func(ctx context.Context) error {
			_, err := publisher.CreateTopic(ctx, &pubsubpb.Topic{Name: topicName(id)})
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, s := range subscriptions {
		s.Name, s.Topic = project+"/subscriptions/"+s.GetName(), topicName(s.GetTopic())
		err := p.one(ctx, s.GetName(), func(ctx context.Context) error {
			_, err := subscriber.CreateSubscription(ctx, s)
			return err
		})
		if err != nil {
			return err
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
