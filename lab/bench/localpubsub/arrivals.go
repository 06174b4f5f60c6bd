package localpubsub

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"golang.org/x/sync/errgroup"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

const (
	// lightLoad is the load for latencies, in messages per second. It is low for every server. The
	// messages are sent at random moments, so that they do not align with a server that polls at
	// fixed intervals.
	lightLoad = 40
	// patience bounds the wait for the last message.
	patience = 30 * time.Second
)

// latencies sends n messages. For each message it returns the time from just before the publish to
// the callback of the receiver.
func (s *setup) latencies(ctx context.Context, n int) ([]time.Duration, error) {
	arrived := &arrivals{sent: make([]time.Time, n), missing: n}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(n)*time.Second/lightLoad+patience)
	defer cancel()
	both, ctx := errgroup.WithContext(ctx)
	receiving, done := context.WithCancel(ctx)
	both.Go(func() error {
		return s.Client.Subscriber(rig.Topic).Receive(receiving, func(_ context.Context, m *pubsub.Message) {
			m.Ack()
			if arrived.add(int(binary.BigEndian.Uint32(m.Data))) {
				done()
			}
		})
	})
	both.Go(func() error { return s.trickle(ctx, arrived) })
	if err := both.Wait(); err != nil {
		return nil, err
	}
	if arrived.missing > 0 {
		return nil, fmt.Errorf("%d of %d messages did not arrive", arrived.missing, n)
	}
	return arrived.took, nil
}

// trickle publishes the messages one by one, each in its own request. It does not use a Publisher,
// which would delay each message to wait for more messages.
func (s *setup) trickle(ctx context.Context, a *arrivals) error {
	_, err := measure.Paced(ctx, lightLoad, len(a.sent), func(ctx context.Context, i int) error {
		data := append(binary.BigEndian.AppendUint32(nil, uint32(i)), body...)
		a.start(i)
		return rig.Publish(ctx, s.Client, &pubsubpb.PubsubMessage{Data: data})
	})
	return err
}

// arrivals keeps the times of the messages, by the number of the message.
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

// add records the arrival of message i, and reports whether it was the last missing message.
func (a *arrivals) add(i int) (last bool) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took = append(a.took, now.Sub(a.sent[i]))
	a.missing--
	return a.missing == 0
}
