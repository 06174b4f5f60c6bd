package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// streamDeadline is the acknowledgement deadline of a stream in seconds, unless a behaviour sets
// another one. It is longer than any trial.
const streamDeadline = 600

// stream is an open StreamingPull.
type stream struct {
	t            *trial
	subscription string
	rpc          pubsubpb.Subscriber_StreamingPullClient
	opened       time.Time
	cancel       context.CancelFunc
	responses    chan *pubsubpb.StreamingPullResponse // closed when the stream has ended
	ended        error                                // the reason; readable once responses is closed
	pending      []delivery
}

// stream opens a stream without limits of flow control.
func (t *trial) stream(subscription string) *stream {
	return t.open(&pubsubpb.StreamingPullRequest{Subscription: subscription})
}

// limited opens a stream with a limit on unacknowledged messages.
func (t *trial) limited(subscription string, messages int64) *stream {
	return t.open(&pubsubpb.StreamingPullRequest{Subscription: subscription, MaxOutstandingMessages: messages})
}

// open opens a stream with first as its first request.
func (t *trial) open(first *pubsubpb.StreamingPullRequest) *stream {
	if first.GetStreamAckDeadlineSeconds() == 0 {
		first.StreamAckDeadlineSeconds = streamDeadline
	}
	ctx, cancel := context.WithCancel(t.ctx)
	s := &stream{
		t: t, subscription: first.GetSubscription(), opened: time.Now(), cancel: cancel,
		responses: make(chan *pubsubpb.StreamingPullResponse, 16),
	}
	t.cleanup(func(context.Context) { cancel() })
	var err error
	s.rpc, err = t.subscriber.StreamingPull(ctx)
	t.must(err)
	go s.read(ctx)
	s.send(first)
	return s
}

func (s *stream) read(ctx context.Context) {
	defer close(s.responses)
	for {
		response, err := s.rpc.Recv()
		if err != nil {
			s.ended = err
			return
		}
		select {
		case s.responses <- response:
		case <-ctx.Done():
			s.ended = ctx.Err()
			return
		}
	}
}

// send sends a request. It ignores the error, because an error only means that the stream has
// ended. The end of the stream gives the reason.
func (s *stream) send(r *pubsubpb.StreamingPullRequest) { _ = s.rpc.Send(r) }

// abort drops the stream, like a subscriber that was killed.
func (s *stream) abort() { s.cancel() }

// next waits until n messages have arrived, and returns them.
func (s *stream) next(n int) []delivery {
	timeout := time.After(patience)
	for len(s.pending) < n {
		select {
		case response, open := <-s.responses:
			s.pending = append(s.pending, s.took(response, open)...)
		case <-timeout:
			s.t.failf("got only %q within %v, want %d messages", data(s.pending), patience, n)
		}
	}
	all := s.pending[:n]
	s.pending = slices.Clone(s.pending[n:])
	return all
}

// one waits for one message and returns it.
func (s *stream) one() delivery { return s.next(1)[0] }

// want waits for messages. It ends the trial unless they have these texts, in this order.
func (s *stream) want(texts ...string) []delivery {
	all := s.next(len(texts))
	if got := data(all); !slices.Equal(got, texts) {
		s.t.failf("got %q, want %q in this order", got, texts)
	}
	return all
}

// wantSet waits for messages. It ends the trial unless they have these texts, in any order.
func (s *stream) wantSet(texts ...string) []delivery {
	all := s.next(len(texts))
	s.t.sameSet("messages", data(all), texts)
	return all
}

// quiet listens for the duration d, and ends the trial if a message arrives.
func (s *stream) quiet(d time.Duration) {
	timeout := time.After(d)
	for len(s.pending) == 0 {
		select {
		case response, open := <-s.responses:
			s.pending = append(s.pending, s.took(response, open)...)
		case <-timeout:
			return
		}
	}
	s.t.failf("got %q, which must not come", data(s.pending))
}

// took returns the messages of a response. If the stream is no longer open, took ends the trial.
func (s *stream) took(response *pubsubpb.StreamingPullResponse, open bool) []delivery {
	if !open {
		s.t.failf("the stream ended: %w", s.ended)
	}
	return deliveries(response.GetReceivedMessages())
}

// both waits until n messages have arrived on the two streams together, and
// returns the messages of each stream.
func both(a, b *stream, n int) (ofA, ofB []delivery) {
	for timeout := time.After(patience); len(ofA)+len(ofB) < n; {
		select {
		case response, open := <-a.responses:
			ofA = append(ofA, a.took(response, open)...)
		case response, open := <-b.responses:
			ofB = append(ofB, b.took(response, open)...)
		case <-timeout:
			a.t.failf("only %q and %q came within %v, want %d messages", data(ofA), data(ofB), patience, n)
		}
	}
	return ofA, ofB
}

// response waits for a response, which may have any content.
func (s *stream) response() *pubsubpb.StreamingPullResponse {
	select {
	case response, open := <-s.responses:
		s.took(response, open)
		return response
	case <-time.After(patience):
		s.t.failf("no answer within %v", patience)
		return nil
	}
}

// end waits for the stream's end and returns the reason.
func (s *stream) end() error {
	timeout := time.After(patience)
	for {
		select {
		case _, open := <-s.responses:
			if !open {
				return s.ended
			}
		case <-timeout:
			return fmt.Errorf("the stream is still open after %v", patience)
		}
	}
}

func (s *stream) ack(all ...delivery)  { s.t.ack(s.subscription, all...) }
func (s *stream) nack(all ...delivery) { s.t.nack(s.subscription, all...) }

const (
	// ackSeconds is the length of a lease. It is long enough for an
	// acknowledgement, even on a busy machine.
	ackSeconds = 4
	// ackTime is the time after which a lease of ackSeconds has ended. If the acknowledgement was
	// lost, the message has come again by then.
	ackTime = ackSeconds*time.Second + silence
)

// ackInTime shortens the lease and then acknowledges the message. If the server does not accept the
// acknowledgement, the message comes again soon, so that the trial can see it.
func (s *stream) ackInTime(d delivery) {
	s.t.extend(s.subscription, ackSeconds, d)
	s.ack(d)
}

// expire makes the leases of the deliveries end after one second.
func (s *stream) expire(all ...delivery) { s.t.extend(s.subscription, 1, all...) }
