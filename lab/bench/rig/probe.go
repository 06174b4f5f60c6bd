package rig

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

	"example.com/lockstep/localpubsub"
	"example.com/lockstep/pkg/eventing"
)

// BrokerProbe is the broker to which relays publish. It is a server in its own process, or a stub
// that answers at once. It sees each acknowledgement, and checks the order of the events.
type BrokerProbe struct {
	Client *pubsub.Client
	broker *Broker // nil: the stub
	// If Missing is true, every publish fails, as if there were no topic. It must be set before the
	// first use.
	Missing bool
	// Ignored is a key whose messages are not counted. It must be set before the first use.
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
	// PublishLatency is the duration of a publish at a broker that takes time to answer.
	PublishLatency = 5 * time.Millisecond
	// NoBroker is a value for a latency. It selects the stub, which answers every publish at once,
	// without a broker.
	NoBroker = time.Duration(-1)
)

// OpenProbe returns a probe of a broker. Each publish at the broker takes latency, and the broker
// has the given faults. If latency is [NoBroker], the probe is the stub.
func OpenProbe(ctx context.Context, latency time.Duration, faults ...localpubsub.Fault) (_ *BrokerProbe, err error) {
	p := &BrokerProbe{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if latency == NoBroker {
		err = p.dial(ctx, "passthrough:///none")
		return p, err
	}
	if p.broker, err = StartBroker(ctx); err != nil {
		return nil, err
	}
	if err := p.dial(ctx, p.broker.Addr); err != nil {
		return nil, err
	}
	if err := CreateTopic(ctx, p.Client, Topic); err != nil {
		return nil, err
	}
	if latency > 0 {
		slow := localpubsub.Fault{Kind: localpubsub.Latency, Method: "Publish", Delay: localpubsub.Duration(latency)}
		faults = slices.Insert(faults, 0, slow)
	}
	err = p.broker.SetFaults(ctx, faults)
	return p, err
}

func (p *BrokerProbe) dial(ctx context.Context, addr string) (err error) {
	p.last, p.reached = map[string]int64{}, make(chan struct{})
	p.Client, err = DialBroker(ctx, addr, grpc.WithUnaryInterceptor(p.intercept))
	return err
}

func (p *BrokerProbe) intercept(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	publish, ok := req.(*pubsubpb.PublishRequest)
	if !ok {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	if p.Missing {
		return status.Error(codes.NotFound, "no such topic")
	}
	if p.broker == nil {
		reply.(*pubsubpb.PublishResponse).MessageIds = make([]string, len(publish.GetMessages()))
	} else if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
		return err
	}
	p.note(publish.GetMessages(), time.Now())
	return nil
}

// note records acknowledged messages.
func (p *BrokerProbe) note(messages []*pubsubpb.PubsubMessage, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range messages {
		if m.GetOrderingKey() == p.Ignored {
			continue
		}
		version, err := strconv.ParseInt(m.GetAttributes()[eventing.AttrVersion], 10, 64)
		last := p.last[m.GetOrderingKey()]
		switch {
		case err != nil || version > last+1:
			if p.disorder == "" {
				p.disorder = fmt.Sprintf("version %d of %s followed %d", version, m.GetOrderingKey(), last)
			}
		case version == last+1:
			p.last[m.GetOrderingKey()] = version
			if p.acknowledged != nil {
				p.acknowledged(m, at)
			}
			p.count++
			if p.count == p.goal {
				close(p.reached)
			}
		}
	}
}

// Expect sets the number of acknowledged events for which Await waits. Repeated acknowledgements of
// an event do not count.
func (p *BrokerProbe) Expect(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.goal = n
}

// Await waits until the expected number of events is acknowledged. Its error reports a violation of
// the order, or the progress if ctx has ended.
func (p *BrokerProbe) Await(ctx context.Context) error {
	select {
	case <-p.reached:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.disorder != "":
		return errors.New(p.disorder)
	case ctx.Err() != nil:
		return fmt.Errorf("%d of %d events published: %w", p.count, p.goal, ctx.Err())
	}
	return nil
}

// Close closes the client and ends the broker.
func (p *BrokerProbe) Close() error { return closeBroker(p.Client, p.broker) }
