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
	// drainStreams is how long half-closed streams may take to end when their consumer ends. It
	// leaves more than half of leaveTime for the messages that the streams have brought.
	drainStreams = time.Second
	// receiptTime is a pause before the last nacks. It is longer than the delay with which the client sends
	// the receipts of messages. A receipt extends the lease of its message, so a receipt after the nack
	// would hide the message again.
	receiptTime = 300 * time.Millisecond
)

// pull calls the client's Receive, and changes its end. When ctx ends, pull half-closes the streams,
// and the client reads each stream to its end. Then pull tells the client to close the streams. In
// between pull holds the messages that arrive. After the streams have ended, pull delivers these
// messages, and the consumer gives them back. Held messages fill the window of their stream. So a
// broker that goes on sending can send one window, and not its whole backlog.
func (c *Consumer) pull(ctx context.Context, deliver func(context.Context, *pubsub.Message)) error {
	watching, stopWatching := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { c.watchTopic(watching) })
	defer watch.Wait()
	defer stopWatching()
	streams := c.options.Streams.of(c.subscriber.String())
	if streams == nil {
		return c.subscriber.Receive(ctx, deliver)
	}
	watch.Go(func() { c.watchStreams(watching, streams) })
	receiving, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	var ending sync.WaitGroup
	ending.Go(func() {
		defer close(ended)
		select {
		case <-ctx.Done():
			streams.end()
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

// openStreams are the open streams of one consumer.
type openStreams struct {
	budget *budget

	mu    sync.Mutex
	ended bool // no stream that brings messages is opened any more
	open  map[*openStream]struct{}
	since time.Time // when the last stream that worked has ended, or the consumer has begun
	err   error     // with which the last stream has ended
}

func (o *openStreams) ends() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended
}

// add adds a stream, and reports whether the stream may be opened. No stream may be opened once the
// consumer ends.
func (o *openStreams) add(one *openStream) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return false
	}
	one.opened = time.Now()
	o.open[one] = struct{}{}
	context.AfterFunc(one.ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.open, one)
		if one.works() {
			o.since = time.Now()
		}
	})
	return true
}

// end half-closes the streams, and returns when the client has read them to their end, or after
// drainStreams. The client then has every message that the broker has sent, and gets no
// more.
func (o *openStreams) end() {
	o.mu.Lock()
	o.ended = true
	open := slices.Collect(maps.Keys(o.open))
	o.mu.Unlock()
	for _, one := range open {
		// CloseSend waits for a request that is being sent. The error of a broken stream does not matter.
		go func() { _ = one.CloseSend() }()
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
