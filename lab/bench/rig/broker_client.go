package rig

import (
	"context"
	"errors"

	"cloud.google.com/go/pubsub/v2"
)

// A BrokerClient is an unused broker and a client of it. The broker has nothing from an earlier
// run. No other server is idle next to the broker, because some servers use a whole core when they
// are idle.
type BrokerClient struct {
	Broker *Broker
	Client *pubsub.Client
}

// StartBrokerClient starts a broker, and creates the topic and its subscription. args are the
// arguments of [ServeBroker].
func StartBrokerClient(ctx context.Context, ordered bool, args ...string) (_ *BrokerClient, err error) {
	c := new(BrokerClient)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.Broker, err = StartBroker(ctx, args...); err != nil {
		return nil, err
	}
	if c.Client, err = DialBroker(ctx, c.Broker.Addr); err != nil {
		return nil, err
	}
	err = c.Create(ctx, Topic, ordered)
	return c, err
}

// Create creates a topic, and its subscription of the same name.
func (c *BrokerClient) Create(ctx context.Context, name string, ordered bool) error {
	if err := CreateTopic(ctx, c.Client, name); err != nil {
		return err
	}
	return Subscribe(ctx, c.Client, name, ordered)
}

// Close closes the client and ends the broker.
func (c *BrokerClient) Close() error { return closeBroker(c.Client, c.Broker) }

// closeBroker closes a client and ends its broker. The client and the broker may be nil.
func closeBroker(client *pubsub.Client, broker *Broker) error {
	var errs []error
	if client != nil {
		errs = append(errs, client.Close())
	}
	if broker != nil {
		errs = append(errs, broker.Close())
	}
	return errors.Join(errs...)
}
