package inbox

import (
	"context"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// worksTime is the age from which a stream works that has brought no message yet.
	worksTime = 2 * time.Second
	// awayTime is a duration. If no stream has worked for longer, the broker counts as away (isAway). The
	// broker, the client or widen may end a stream at any time. The client opens the next stream after a pause,
	// which is a second at most if the stream before has brought a message. With each further stream that ends
	// without a message, the longest pause doubles, up to 30 s. After a stream of 30 s or more there is no pause.
	// In a pause that is longer than awayTime the broker counts as away, because nothing is received.
	awayTime = 20 * time.Second
	// lookAtStreamsEvery is how often a consumer looks whether a stream works, and sayAwayEvery is how
	// often its log says that none does.
	lookAtStreamsEvery = 5 * time.Second
	sayAwayEvery       = time.Minute
)

// works reports whether the broker serves the stream. Before a message there is no sign of that but time: a broker
// that is out ends a stream at once, and the client then opens another.
func (o *openStream) works() bool {
	return !o.refused.Load() && (o.served.Load() || time.Since(o.opened) > worksTime)
}

// awaitAnswer waits until the broker has answered the stream or has ended it, and notes a stream that the broker has
// ended at once. The client may read a stream up to half a minute after it has opened the stream, and notices its end
// no earlier.
func (o *openStream) awaitAnswer() {
	if answer, _ := o.Header(); answer == nil && !o.served.Load() && time.Since(o.opened) <= worksTime {
		o.refused.Store(true)
	}
}

// isAway reports whether no stream has worked for awayTime.
func (o *openStreams) isAway() bool {
	away, _ := o.away()
	return away > awayTime
}

// away returns for how long no stream has worked, and the error of the last stream. While the broker cannot be
// reached, the client waits for a connection before it opens a stream.
func (o *openStreams) away() (time.Duration, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for one := range o.open {
		if one.works() {
			return 0, nil
		}
	}
	return time.Since(o.since), o.err
}

// failed keeps the error with which a stream has ended, for the log.
func (o *openStreams) failed(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

// isAway reports whether the consumer receives nothing since no stream works. Without Options.Streams it is not
// known, and isAway returns false.
func (c *Consumer) isAway() bool {
	p := c.options.Streams.of(c.subscriber.String())
	return p != nil && p.isAway()
}

// watchStreams says in the log that no stream works, once a minute until ctx ends. The client opens a broken stream
// again and again, and returns an error only for a broker that refuses it.
func (c *Consumer) watchStreams(ctx context.Context, streams *openStreams) {
	var said time.Time
	for backoff.Sleep(ctx, lookAtStreamsEvery, nil) {
		switch away, err := streams.away(); {
		case away <= awayTime && !said.IsZero():
			c.log.InfoContext(ctx, "stream to the broker works again")
			said = time.Time{}
		case away > awayTime && time.Since(said) >= sayAwayEvery:
			c.log.WarnContext(ctx, "nothing is received, no stream to the broker works", "seconds", int(away.Seconds()), "error", err)
			said = time.Now()
		}
	}
}
