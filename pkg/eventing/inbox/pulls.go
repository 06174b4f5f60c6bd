package inbox

import (
	"context"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
)

// drainStreams bounds the end of half-closed streams when their consumer ends. It leaves two
// thirds of drainTime to the messages that they have brought.
const drainStreams = time.Second

// pull is the client's Receive, but for the end: the client has read its streams to their end
// before it is told to close them.
func (c *Consumer) pull(ctx context.Context, deliver func(context.Context, *pubsub.Message)) error {
	pulls := c.options.Streams.of(c.subscriber.String())
	if pulls == nil {
		return c.subscriber.Receive(ctx, deliver)
	}
	receiving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var ending sync.WaitGroup
	ending.Go(func() {
		select {
		case <-ctx.Done():
			pulls.end()
			stop()
		case <-receiving.Done():
		}
	})
	defer ending.Wait()
	defer stop()
	return c.subscriber.Receive(receiving, deliver)
}

// pulls are the open streams of one consumer.
type pulls struct {
	budget *budget

	mu    sync.Mutex
	ended bool // no stream is opened any more that brings messages
	open  map[*pull]struct{}
	left  chan struct{} // has a token after a stream has ended
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
		select {
		case p.left <- struct{}{}:
		default:
		}
	})
	return true
}

// end half-closes the streams, and returns when the client has read them to their end, or after
// drainStreams. The client then has every message that the broker has sent, and gets no
// more.
func (p *pulls) end() {
	p.mu.Lock()
	p.ended = true
	for one := range p.open {
		go func() { _ = one.CloseSend() }() // waits for a request that is being sent; of a broken stream it is not missed
	}
	p.mu.Unlock()
	limit := time.NewTimer(drainStreams)
	defer limit.Stop()
	for {
		p.mu.Lock()
		n := len(p.open)
		p.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-p.left:
		case <-limit.C:
			return
		}
	}
}
