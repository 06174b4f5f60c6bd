package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/localpubsub"
)

// outlet is where events leave: a broker in a process of its own, or one that
// answers at once because there is none. It sees each acknowledgement, and whether
// the order was kept.
type outlet struct {
	client *pubsub.Client
	conn   *grpc.ClientConn
	server *pubsubServer // nil: every publish is answered at once
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
	if o.server, err = startServer(ctx); err != nil {
		return nil, err
	}
	err = o.dial(ctx, o.server.Addr)
	if err != nil {
		return nil, err
	}
	if _, err = o.client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: topicName(subject)}); err != nil {
		return nil, err
	}
	err = o.server.setFaults(ctx, faults)
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
	o.conn, err = grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithUnaryInterceptor(o.intercept))
	if err != nil {
		return err
	}
	o.client, err = pubsub.NewClient(ctx, project, option.WithGRPCConn(o.conn))
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

// publish sends messages of one key in a request of their own.
func (o *outlet) publish(ctx context.Context, messages ...*pubsubpb.PubsubMessage) error {
	_, err := o.client.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{Topic: topicName(subject), Messages: messages})
	return err
}

// subscribe gives the topic its subscription, which is ordered.
func (o *outlet) subscribe(ctx context.Context) error {
	_, err := o.client.SubscriptionAdminClient.CreateSubscription(ctx, subscriptionTo(subject, true))
	return err
}

func (o *outlet) close() error {
	var errs []error
	if o.client != nil {
		errs = append(errs, o.client.Close())
	}
	if o.server != nil {
		errs = append(errs, o.server.Close())
	}
	return errors.Join(errs...)
}

// setFaults replaces the faults of a local Pub/Sub.
func (s *pubsubServer) setFaults(ctx context.Context, faults []localpubsub.Fault) error {
	plan, err := json.Marshal(localpubsub.FaultPlan{Seed: 1, Faults: faults})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+s.Addr+"/control/faults", bytes.NewReader(plan))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("set faults: %s", response.Status)
	}
	return nil
}
