package inbox

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// drainStreams bounds the end of half-closed streams when their consumer ends. It leaves
	// half of drainTime to the messages that they have brought.
	drainStreams = time.Second
	// receiptTime is more than the time for which the client keeps back the receipts of
	// messages. A receipt extends the lease: behind a nack, it would hide the message again.
	receiptTime = 300 * time.Millisecond
)

// pull is the client's Receive, but for the end: the client has read its streams to their end
// before it is told to close them. What they bring meanwhile is delivered, to be given back,
// only then. If the broker went on sending, it would send one window, not its whole backlog.
func (c *Consumer) pull(ctx context.Context, deliver func(context.Context, *pubsub.Message)) error {
	pulls := c.options.Streams.of(c.subscriber.String())
	if pulls == nil {
		return c.subscriber.Receive(ctx, deliver)
	}
	receiving, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	var ending sync.WaitGroup
	ending.Go(func() {
		defer close(ended)
		select {
		case <-ctx.Done():
			pulls.end()
			backoff.Sleep(receiving, receiptTime, nil)
			stop()
		case <-receiving.Done():
		}
	})
	defer ending.Wait()
	defer stop()
	return c.subscriber.Receive(receiving, func(callback context.Context, m *pubsub.Message) {
		if ctx.Err() != nil {
			<-ended
		}
		deliver(callback, m)
	})
}

// pulls are the open streams of one consumer.
type pulls struct {
	budget *budget

	mu    sync.Mutex
	ended bool // no stream is opened any more that brings messages
	open  map[*pull]struct{}
}

func (p *pulls) ends() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// add reports whether the stream may be opened: the consumer goes on.
func (p *pulls) add(one *pull) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.open[one] = struct{}{}
	context.AfterFunc(one.ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, one)
	})
	return true
}

// end half-closes the streams, and returns when the client has read them to their end, or after
// drainStreams. The client then has every message that the broker has sent, and gets no
// more.
func (p *pulls) end() {
	p.mu.Lock()
	p.ended = true
	open := slices.Collect(maps.Keys(p.open))
	p.mu.Unlock()
	for _, one := range open {
		go func() { _ = one.CloseSend() }() // waits for a request that is being sent; of a broken stream it is not missed
	}
	limit := time.After(drainStreams)
	for _, one := range open {
		select {
		case <-one.ctx.Done():
		case <-limit:
			return
		}
	}
}
