package localpubsub

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"golang.org/x/sync/errgroup"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// outstanding is the client's limit of unacknowledged messages, for publishing and for receiving.
// The client's own default for receiving is 1,000. It limits any server to 10,000 messages/s,
// because the client sends acknowledgements every 100 ms.
const outstanding = 10_000

// fewOutstanding is the limit if each message is its own request. With it, the slowest server
// finishes the last messages within seconds.
const fewOutstanding = 2_000

// body is the content of each message when rates are measured.
var body = make([]byte, 1000)

// publish publishes for the duration limit, like a program: with the library's Publisher and its
// defaults. It returns acknowledged messages per second.
func (s *setup) publish(ctx context.Context, topic string, keys int, limit time.Duration) (float64, error) {
	publisher := s.Client.Publisher(topic)
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
	return measure.PerSecond(acknowledged, start), err
}

// receive receives on one stream until n messages have arrived or limit is over. If no message has
// arrived by then, it waits for one, because a slow server on a busy machine may have sent none. It
// acknowledges each message at once. It returns messages per second.
func (s *setup) receive(ctx context.Context, subscription string, n int, limit time.Duration) (float64, error) {
	subscriber := s.Client.Subscriber(subscription)
	subscriber.ReceiveSettings.MaxOutstandingMessages = outstanding
	receiving, cancel := context.WithCancel(ctx)
	defer cancel()
	start := time.Now()
	var received atomic.Int64
	var over atomic.Bool
	var last sync.Once
	took := limit
	defer time.AfterFunc(limit, func() {
		over.Store(true)
		if received.Load() > 0 {
			cancel()
		}
	}).Stop()
	err := subscriber.Receive(receiving, func(_ context.Context, m *pubsub.Message) {
		m.Ack()
		if receiving.Err() != nil {
			return // delivered after the end
		}
		if received.Add(1) == int64(n) || over.Load() {
			last.Do(func() { took = time.Since(start) })
			cancel()
		}
	})
	// Receive returns no error when its context ends, even if it ended because the caller's context
	// ended.
	if err = errors.Join(err, ctx.Err()); err != nil {
		return 0, fmt.Errorf("receive: %w", err)
	}
	return float64(min(received.Load(), int64(n))) / took.Seconds(), nil
}

// warmUp is the topic of [setup.warm].
const warmUp = "warm-up"

// warm publishes and receives for a while. The Java VM needs this to compile its code, and
// connections need it to open their flow control windows. Every side is warmed.
func (s *setup) warm(ctx context.Context, limit time.Duration) error {
	if err := s.Create(ctx, warmUp, false); err != nil {
		return err
	}
	if _, err := s.publish(ctx, warmUp, 0, limit); err != nil {
		return err
	}
	if _, err := s.receive(ctx, warmUp, math.MaxInt, limit); err != nil {
		return err
	}
	return s.Client.SubscriptionAdminClient.DeleteSubscription(ctx,
		&pubsubpb.DeleteSubscriptionRequest{Subscription: rig.SubscriptionName(warmUp)})
}

const (
	// storeBatch is the API's limit for the messages of one request.
	storeBatch = 1000
	// storeConcurrent is the number of concurrent requests of store.
	storeConcurrent = 8
)

// store publishes n messages with as little client work as possible. Each key gets n/keys messages.
// A request has at most batch messages, all of one key. store returns the number of messages that
// the server has accepted. This is less than n if ctx ends early.
func (s *setup) store(ctx context.Context, n, keys, batch int, data []byte) (int, error) {
	lanes := max(keys, 1)
	perLane := n / lanes
	var stored atomic.Int64
	workers, working := errgroup.WithContext(ctx)
	for w := range min(storeConcurrent, lanes) {
		workers.Go(func() error {
			for done := 0; done < perLane; done += batch {
				for lane := w; lane < lanes; lane += storeConcurrent {
					size := min(batch, perLane-done)
					if err := s.request(working, size, keyName(lane, keys), data); err != nil {
						return fmt.Errorf("store messages: %w", err)
					}
					stored.Add(int64(size))
				}
			}
			return nil
		})
	}
	err := workers.Wait()
	if ctx.Err() != nil {
		err = nil
	}
	return int(stored.Load()), err
}

func (s *setup) request(ctx context.Context, n int, key string, data []byte) error {
	messages := make([]*pubsubpb.PubsubMessage, n)
	for i := range messages {
		messages[i] = &pubsubpb.PubsubMessage{Data: data, OrderingKey: key}
	}
	return rig.Publish(ctx, s.Client, messages...)
}

// keyName returns the key of message i if there are the given number of keys.
func keyName(i, keys int) string {
	if keys == 0 {
		return ""
	}
	return "key-" + strconv.Itoa(i%keys)
}
