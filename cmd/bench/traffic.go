package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"golang.org/x/sync/errgroup"

	"example.com/lockstep/cmd/bench/load"
	"example.com/lockstep/cmd/bench/measure"
	"example.com/lockstep/cmd/bench/report"
	"example.com/lockstep/cmd/bench/rig/broker"
	"example.com/lockstep/cmd/bench/rig/process"
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
	publisher := r.Client.Publisher(topic)
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

// receive receives on one stream until n messages are there, or for as long as
// limit says, and acknowledges each at once. It returns messages per second.
func (r *rig) receive(ctx context.Context, subscription string, n int, limit time.Duration) (float64, error) {
	subscriber := r.Client.Subscriber(subscription)
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
	// lightLoad is how many messages a latency is made of: a load that is low for
	// everybody. Their moments are random, so as not to fall in step with a server
	// that looks for messages every so often.
	lightLoad = 40
	// patience bounds the wait for the last of them.
	patience = 30 * time.Second
)

// latencies returns how long each of n messages took from
// just before it was published to its callback.
func (r *rig) latencies(ctx context.Context, n int) ([]time.Duration, error) {
	arrived := &arrivals{sent: make([]time.Time, n), missing: n}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(n)*time.Second/lightLoad+patience)
	defer cancel()
	both, ctx := errgroup.WithContext(ctx)
	receiving, done := context.WithCancel(ctx)
	both.Go(func() error {
		return r.Client.Subscriber(broker.Subject).Receive(receiving, func(_ context.Context, m *pubsub.Message) {
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
	_, err := load.Paced(ctx, lightLoad, len(a.sent), func(ctx context.Context, i int) error {
		data := append(binary.BigEndian.AppendUint32(nil, uint32(i)), body...)
		a.start(i)
		return broker.Publish(ctx, r.Client, &pubsubpb.PubsubMessage{Data: data})
	})
	return err
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

// warmUp is the topic of [rig.warm].
const warmUp = "warm-up"

// warm publishes and receives for a while on each side: the Java machine needs it
// to compile, connections to open their windows. Everybody gets it.
func (r *rig) warm(ctx context.Context, limit time.Duration) error {
	if err := r.Create(ctx, warmUp, false); err != nil {
		return err
	}
	if _, err := r.publish(ctx, warmUp, 0, limit); err != nil {
		return err
	}
	if _, err := r.receive(ctx, warmUp, math.MaxInt, limit); err != nil {
		return err
	}
	return r.Client.SubscriptionAdminClient.DeleteSubscription(ctx,
		&pubsubpb.DeleteSubscriptionRequest{Subscription: broker.SubscriptionName(warmUp)})
}

// The raw API's limits for one request.
const (
	storeBatch      = 1000
	storeConcurrent = 8
)

// store publishes n messages with as little work for the client as can be: n/keys
// for each key, in requests of at most batch messages of one key each. It returns
// how many the server has accepted: fewer than n when ctx has ended before.
func (r *rig) store(ctx context.Context, n, keys, batch int, data []byte) (int, error) {
	lanes := max(keys, 1)
	perLane := n / lanes
	var stored atomic.Int64
	workers, working := errgroup.WithContext(ctx)
	for w := range min(storeConcurrent, lanes) {
		workers.Go(func() error {
			for done := 0; done < perLane; done += batch {
				for lane := w; lane < lanes; lane += storeConcurrent {
					size := min(batch, perLane-done)
					if err := r.request(working, size, keyName(lane, keys), data); err != nil {
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

func (r *rig) request(ctx context.Context, n int, key string, data []byte) error {
	messages := make([]*pubsubpb.PubsubMessage, n)
	for i := range messages {
		messages[i] = &pubsubpb.PubsubMessage{Data: data, OrderingKey: key}
	}
	return broker.Publish(ctx, r.Client, messages...)
}

// keyName is the key of the i-th message, among so many keys.
func keyName(i, keys int) string {
	if keys == 0 {
		return ""
	}
	return "key-" + strconv.Itoa(i%keys)
}

// used is the CPU time that server and client have used since they were started.
type used struct {
	server, client time.Duration
	at             time.Time
}

func (r *rig) used() used {
	return used{server: process.CPU(r.Server.PID), client: process.CPU(os.Getpid()), at: time.Now()}
}

// perMessage makes a reading of a rate, with what a message has cost each side
// since before. That hardly depends on what else the machine does, as the rate
// does.
func (r *rig) perMessage(rate float64, before used) measure.Reading {
	now := r.used()
	wall := now.at.Sub(before.at).Seconds()
	server, client := (now.server - before.server).Seconds(), (now.client - before.client).Seconds()
	if server == 0 || rate == 0 {
		return measure.Reading{Values: []float64{rate}}
	}
	micros := 1e6 / (rate * wall)
	return measure.Reading{Values: []float64{rate}, Note: fmt.Sprintf("CPU a message: server %s us, client %s us; cores busy: %.1f and %.1f",
		report.Display(server*micros), report.Display(client*micros), server/wall, client/wall)}
}
