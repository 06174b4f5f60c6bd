package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/cmd/bench/rig/broker"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/localpubsub"
)

// outlet is where events leave: a broker in a process of its own, or one that
// answers at once because there is none. It sees each acknowledgement, and whether
// the order was kept.
type outlet struct {
	client *pubsub.Client
	server *broker.Server // nil: every publish is answered at once
	// missing says that there is no topic; it is set before the first use.
	missing bool
	// ignored is a key that does not count; it is set before the first use.
	ignored string

	mu       sync.Mutex
	last     map[string]int64 // versions, by key
	count    int              // of first acknowledgements
	disorder string           // the first one, or empty
	// acknowledged, if set, is told of each first acknowledgement.
	acknowledged func(m *pubsubpb.PubsubMessage, at time.Time)
	goal         int
	reached      chan struct{} // closed when count is goal
}

// newOutlet returns an outlet to a broker that takes latency for each publish.
func newOutlet(ctx context.Context, latency time.Duration) (*outlet, error) {
	if latency == 0 {
		return newFaultyOutlet(ctx)
	}
	return newFaultyOutlet(ctx, publishTakes(latency))
}

func publishTakes(latency time.Duration) localpubsub.Fault {
	return localpubsub.Fault{Kind: localpubsub.Latency, Method: "Publish", Delay: localpubsub.Duration(latency)}
}

// newFaultyOutlet returns an outlet to a broker with faults.
func newFaultyOutlet(ctx context.Context, faults ...localpubsub.Fault) (_ *outlet, err error) {
	o := &outlet{}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	if o.server, err = broker.Start(ctx); err != nil {
		return nil, err
	}
	err = o.dial(ctx, o.server.Addr)
	if err != nil {
		return nil, err
	}
	if err := broker.CreateTopic(ctx, o.client, broker.Subject); err != nil {
		return nil, err
	}
	err = o.server.SetFaults(ctx, faults)
	return o, err
}

// newInstantOutlet answers every publish at once.
func newInstantOutlet(ctx context.Context) (*outlet, error) {
	o := &outlet{}
	if err := o.dial(ctx, "passthrough:///nobody"); err != nil {
		return nil, errors.Join(err, o.close())
	}
	return o, nil
}

func (o *outlet) dial(ctx context.Context, addr string) (err error) {
	o.last, o.reached = map[string]int64{}, make(chan struct{})
	o.client, err = broker.Dial(ctx, addr, grpc.WithUnaryInterceptor(o.intercept))
	return err
}

func (o *outlet) intercept(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	publish, ok := req.(*pubsubpb.PublishRequest)
	if !ok {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	if o.missing {
		return status.Error(codes.NotFound, "no such topic")
	}
	if o.server == nil {
		reply.(*pubsubpb.PublishResponse).MessageIds = make([]string, len(publish.GetMessages()))
	} else if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
		return err
	}
	o.note(publish.GetMessages(), time.Now())
	return nil
}

// note takes down what was acknowledged.
func (o *outlet) note(messages []*pubsubpb.PubsubMessage, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range messages {
		if m.GetOrderingKey() == o.ignored {
			continue
		}
		version, err := strconv.ParseInt(m.GetAttributes()[eventing.AttrVersion], 10, 64)
		last := o.last[m.GetOrderingKey()]
		switch {
		case err != nil || version > last+1:
			if o.disorder == "" {
				o.disorder = fmt.Sprintf("version %d of %s followed %d", version, m.GetOrderingKey(), last)
			}
		case version == last+1:
			o.last[m.GetOrderingKey()] = version
			if o.acknowledged != nil {
				o.acknowledged(m, at)
			}
			o.count++
			if o.count == o.goal {
				close(o.reached)
			}
		}
	}
}

// expect says after how many first acknowledgements reached is closed.
func (o *outlet) expect(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.goal = n
}

// await waits until reached is closed. Its error says how far it came, or that the
// order was broken.
func (o *outlet) await(ctx context.Context) error {
	select {
	case <-o.reached:
	case <-ctx.Done():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.disorder != "":
		return errors.New(o.disorder)
	case ctx.Err() != nil:
		return fmt.Errorf("%d of %d events published: %w", o.count, o.goal, ctx.Err())
	}
	return nil
}

func (o *outlet) close() error { return broker.Close(o.client, o.server) }
