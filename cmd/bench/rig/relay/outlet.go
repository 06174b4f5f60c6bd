// Package relay is the relay at work: a crew of relays of one outbox, the outlet where
// its events leave, and a stage with writers before them.
package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// Outlet is where events leave: a broker in a process of its own, or one that
// answers at once because there is none. It sees each acknowledgement, and whether
// the order was kept.
type Outlet struct {
	Client *pubsub.Client
	server *broker.Server // nil: every publish is answered at once
	// Missing says that there is no topic; it is set before the first use.
	Missing bool
	// Ignored is a key that does not count; it is set before the first use.
	Ignored string

	mu       sync.Mutex
	last     map[string]int64 // versions, by key
	count    int              // of first acknowledgements
	disorder string           // the first one, or empty
	// acknowledged, if set, is told of each first acknowledgement.
	acknowledged func(m *pubsubpb.PubsubMessage, at time.Time)
	goal         int
	reached      chan struct{} // closed when count is goal
}

const (
	// Latency is that of a publish where it costs something.
	Latency = 5 * time.Millisecond
	// Instant is that of one that costs nothing at all.
	Instant = time.Duration(-1)
)

// Open returns an outlet to a broker that takes latency for each publish and has
// faults, or to none: where latency is [Instant], every publish is answered at once.
func Open(ctx context.Context, latency time.Duration, faults ...localpubsub.Fault) (_ *Outlet, err error) {
	o := &Outlet{}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Close())
		}
	}()
	if latency == Instant {
		err = o.dial(ctx, "passthrough:///nobody")
		return o, err
	}
	if o.server, err = broker.Start(ctx); err != nil {
		return nil, err
	}
	if err := o.dial(ctx, o.server.Addr); err != nil {
		return nil, err
	}
	if err := broker.CreateTopic(ctx, o.Client, broker.Subject); err != nil {
		return nil, err
	}
	if latency > 0 {
		slow := localpubsub.Fault{Kind: localpubsub.Latency, Method: "Publish", Delay: localpubsub.Duration(latency)}
		faults = slices.Insert(faults, 0, slow)
	}
	err = o.server.SetFaults(ctx, faults)
	return o, err
}

func (o *Outlet) dial(ctx context.Context, addr string) (err error) {
	o.last, o.reached = map[string]int64{}, make(chan struct{})
	o.Client, err = broker.Dial(ctx, addr, grpc.WithUnaryInterceptor(o.intercept))
	return err
}

func (o *Outlet) intercept(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	publish, ok := req.(*pubsubpb.PublishRequest)
	if !ok {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	if o.Missing {
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
func (o *Outlet) note(messages []*pubsubpb.PubsubMessage, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range messages {
		if m.GetOrderingKey() == o.Ignored {
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

// Expect says after how many first acknowledgements reached is closed.
func (o *Outlet) Expect(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.goal = n
}

// Await waits until reached is closed. Its error says how far it came, or that the
// order was broken.
func (o *Outlet) Await(ctx context.Context) error {
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

// Close ends the broker too.
func (o *Outlet) Close() error { return broker.Close(o.Client, o.server) }

// Through measures with an outlet of its own.
func Through(
	ctx context.Context, latency time.Duration, once func(context.Context, *Outlet) (float64, error),
) (_ float64, err error) {
	o, err := Open(ctx, latency)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	return once(ctx, o)
}
