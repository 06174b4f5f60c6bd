// Package relay runs relays for the measurements: a crew of relays of one
// outbox, the outlet that they publish to, and a stage that adds writers.
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

	"example.com/lockstep/lab/bench/rig/broker"
	"example.com/lockstep/localpubsub"
	"example.com/lockstep/pkg/eventing"
)

// Outlet is the broker that relays publish to: a server in its own process, or
// a stub that answers at once. It sees each acknowledgement, and checks the
// order.
type Outlet struct {
	Client *pubsub.Client
	server *broker.Server // nil: every publish is answered at once
	// Missing makes every publish fail without a topic; it is set before the
	// first use.
	Missing bool
	// Ignored is a key that is not counted; it is set before the first use.
	Ignored string

	mu       sync.Mutex
	last     map[string]int64 // versions, by key
	count    int              // of first acknowledgements
	disorder string           // the first one, or empty
	// acknowledged, if set, is called at each first acknowledgement.
	acknowledged func(m *pubsubpb.PubsubMessage, at time.Time)
	goal         int
	reached      chan struct{} // closed when count is goal
}

const (
	// Latency is the duration of a publish at a broker that takes time.
	Latency = 5 * time.Millisecond
	// Instant means that a publish is answered at once, without a broker.
	Instant = time.Duration(-1)
)

// Open returns an outlet to a broker with this latency for each publish and
// with faults. If latency is [Instant], there is no broker, and every publish
// is answered at once.
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

// note records acknowledged messages.
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

// Expect sets the number of first acknowledgements after which reached is
// closed.
func (o *Outlet) Expect(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.goal = n
}

// Await waits until reached is closed. Its error reports the progress, or a
// violation of the order.
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

// Close also ends the broker.
func (o *Outlet) Close() error { return broker.Close(o.Client, o.server) }

// Through measures with a new outlet.
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
