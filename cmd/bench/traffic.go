package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"golang.org/x/sync/errgroup"
)

// outstanding is how many messages the client has under way at most, both when it
// publishes and when it receives. Its own default of 1,000 for the latter holds
// any server to 10,000 messages/s, since acknowledgements leave every 100 ms.
const outstanding = 10_000

// fewOutstanding is the bound where each message is a request of its own, so that
// the slowest server is done with the last of them within seconds.
const fewOutstanding = 2_000

// body is what a message of the rates carries.
var body = make([]byte, 1000)

// publish publishes for as long as limit says, as a program would: through the
// library's Publisher with its defaults. It returns acknowledged messages per
// second.
func (r *rig) publish(ctx context.Context, topic string, keys int, limit time.Duration) (float64, error) {
	publisher := r.client.Publisher(topic)
	publisher.EnableMessageOrdering = keys > 0
	bound := outstanding
	if keys > fewOutstanding {
		bound = fewOutstanding
	}
	publisher.PublishSettings.FlowControlSettings = pubsub.FlowControlSettings{
		MaxOutstandingMessages: bound, LimitExceededBehavior: pubsub.FlowControlBlock,
	}
	defer publisher.Stop()
	results := make(chan *pubsub.PublishResult, bound)
	both, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	both.Go(func() error {
		defer close(results)
		for i := 0; time.Since(start) < limit; i++ {
			select {
			case results <- publisher.Publish(ctx, &pubsub.Message{Data: body, OrderingKey: keyName(i, keys)}):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	acknowledged := 0
	both.Go(func() error {
		for result := range results {
			if _, err := result.Get(ctx); err != nil {
				return fmt.Errorf("publish: %w", err)
			}
			acknowledged++
		}
		return nil
	})
	err := both.Wait()
	return float64(acknowledged) / time.Since(start).Seconds(), err
}

// receive receives on one stream until n messages are there, or for as long as
// limit says, and acknowledges each at once. It returns messages per second.
func (r *rig) receive(ctx context.Context, subscription string, n int, limit time.Duration) (float64, error) {
	subscriber := r.client.Subscriber(subscription)
	subscriber.ReceiveSettings.MaxOutstandingMessages = outstanding
	receiving, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	var received atomic.Int64
	took := limit
	err := subscriber.Receive(receiving, func(_ context.Context, m *pubsub.Message) {
		m.Ack()
		if receiving.Err() != nil {
			return // handed over after the end
		}
		if received.Add(1) == int64(n) {
			took = time.Since(start)
			cancel()
		}
	})
	// Receive takes the end of its context for a success, also when it was not ours.
	if err = errors.Join(err, ctx.Err()); err != nil {
		return 0, fmt.Errorf("receive: %w", err)
	}
	return float64(min(received.Load(), int64(n))) / took.Seconds(), nil
}

const (
	// pause is the mean time between two messages of the latency: a load that is
	// low for everybody. They are random, so as not to fall in step with a server
	// that looks for messages every so often.
	pause = 25 * time.Millisecond
	// patience bounds the wait for the last of them.
	patience = 30 * time.Second
)

// latencies returns how long each of n messages took from
// just before it was published to its callback.
func (r *rig) latencies(ctx context.Context, n int) ([]time.Duration, error) {
	arrived := &arrivals{sent: make([]time.Time, n), missing: n}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(n)*pause+patience)
	defer cancel()
	both, ctx := errgroup.WithContext(ctx)
	receiving, done := context.WithCancel(ctx)
	both.Go(func() error {
		return r.client.Subscriber(subject).Receive(receiving, func(_ context.Context, m *pubsub.Message) {
			m.Ack()
			if arrived.add(int(binary.BigEndian.Uint32(m.Data))) {
				done()
			}
		})
	})
	both.Go(func() error { return r.trickle(ctx, arrived) })
	if err := both.Wait(); err != nil {
		return nil, err
	}
	if arrived.missing > 0 {
		return nil, fmt.Errorf("%d of %d messages did not arrive", arrived.missing, n)
	}
	return arrived.took, nil
}

// trickle publishes the messages one by one, by requests of their own: a Publisher
// would hold each back for some company.
func (r *rig) trickle(ctx context.Context, a *arrivals) error {
	requests, ctx := errgroup.WithContext(ctx)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range a.sent {
		select {
		case <-time.After(time.Duration(random.ExpFloat64() * float64(pause))):
		case <-ctx.Done():
			return requests.Wait()
		}
		data := binary.BigEndian.AppendUint32(nil, uint32(i))
		requests.Go(func() error {
			a.start(i)
			_, err := r.client.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{
				Topic: topicName(subject), Messages: []*pubsubpb.PubsubMessage{{Data: append(data, body...)}},
			})
			return err
		})
	}
	return requests.Wait()
}

// arrivals keeps the times of messages that are told by their number.
type arrivals struct {
	mu      sync.Mutex
	sent    []time.Time
	took    []time.Duration
	missing int
}

func (a *arrivals) start(i int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent[i] = time.Now()
}

// add says whether the message was the last one.
func (a *arrivals) add(i int) (last bool) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took = append(a.took, now.Sub(a.sent[i]))
	a.missing--
	return a.missing == 0
}
