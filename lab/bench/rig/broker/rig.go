package broker

import (
	"context"
	"errors"

	"cloud.google.com/go/pubsub/v2"
)

// A Rig is an unused server and a client of it. Nothing from an earlier run
// remains on it, and no other server is idle next to it: some servers use a
// whole core when idle.
type Rig struct {
	Server *Server
	Client *pubsub.Client
}

// StartRig starts a server, with the arguments of [Serve], and creates the
// topic and its subscription.
func StartRig(ctx context.Context, ordered bool, args ...string) (_ *Rig, err error) {
	r := new(Rig)
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.Server, err = Start(ctx, args...); err != nil {
		return nil, err
	}
	if r.Client, err = Dial(ctx, r.Server.Addr); err != nil {
		return nil, err
	}
	err = r.Create(ctx, Subject, ordered)
	return r, err
}

// Create creates a topic, and its subscription of the same name.
func (r *Rig) Create(ctx context.Context, name string, ordered bool) error {
	if err := CreateTopic(ctx, r.Client, name); err != nil {
		return err
	}
	return Subscribe(ctx, r.Client, name, ordered)
}

// Close also ends the server.
func (r *Rig) Close() error { return Close(r.Client, r.Server) }

// Close closes a client and ends its server; either may be nil.
func Close(client *pubsub.Client, server *Server) error {
	var errs []error
	if client != nil {
		errs = append(errs, client.Close())
	}
	if server != nil {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}
