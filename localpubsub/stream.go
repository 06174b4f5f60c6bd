package localpubsub

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/localpubsub/internal/resource"
)

// batchLimit is the largest number of messages in one response. If the subscription has several
// consumers, sharedBatchLimit applies instead, so that the consumers share a burst.
const (
	batchLimit       = 1000
	sharedBatchLimit = 50
)

// A stream is one StreamingPull.
//
// A stream sends messages while the client's flow control permits. A message is outstanding from
// its delivery until it is acknowledged, nacked or past its deadline. An empty request is a
// keep-alive. The stream answers it with an empty response when nothing else is left to send.
// Acknowledgements come over the stream or in separate calls. When the stream breaks, its messages
// stay leased until their deadline, because the service cannot tell a lost connection from a slow
// consumer (https://cloud.google.com/pubsub/docs/pull#streamingpull_api).
type stream struct {
	pubsubpb.Subscriber_StreamingPullServer

	sub      *subscription
	consumer *consumer

	mu      sync.Mutex
	pings   int
	pending []*pubsubpb.StreamingPullResponse // confirmations
}

// StreamingPull serves a stream until the client, the subscription or the
// server ends it.
func (s subscriber) StreamingPull(server pubsubpb.Subscriber_StreamingPullServer) error {
	first, err := server.Recv()
	if err != nil {
		return err
	}
	if first.GetSubscription() == "" {
		return resource.Invalid("subscription", "the first request of a stream names it")
	}
	found, err := s.subscription(first.GetSubscription())
	if err != nil {
		return err
	}
	if err := resource.CheckDeadline(first.GetStreamAckDeadlineSeconds(), "stream_ack_deadline_seconds"); err != nil {
		return err
	}
	opened := &stream{Subscriber_StreamingPullServer: server, sub: found}
	opened.consumer = newConsumer(time.Duration(first.GetStreamAckDeadlineSeconds()) * time.Second)
	opened.consumer.streaming = true
	opened.consumer.maxMessages, opened.consumer.maxBytes = first.GetMaxOutstandingMessages(), first.GetMaxOutstandingBytes()
	if err := found.open(opened.consumer); err != nil {
		return err
	}
	defer found.close(opened.consumer)
	if err := opened.settle(first); err != nil {
		return err
	}
	received := make(chan error, 1)
	go func() { received <- opened.receive() }()
	return opened.run(server.Context(), received, s.closing, cutOf(server.Context()))
}

func (s *subscription) open(c *consumer) error {
	s.lock()
	defer s.unlock()
	if s.gone != nil {
		return s.gone
	}
	s.join(c)
	return nil
}

func (s *subscription) close(c *consumer) {
	s.lock()
	defer s.unlock()
	s.leave(c)
	s.schedule()
}

// run sends responses until the stream ends. An outage ends it even if there are messages to send.
func (s *stream) run(ctx context.Context, received <-chan error, closing, cut <-chan struct{}) error {
	for {
		select {
		case <-cut:
			return errOutage
		default:
		}
		sent, err := s.send()
		if err != nil {
			return err
		}
		if sent {
			continue
		}
		select {
		case <-s.consumer.work:
		case err := <-received:
			return err
		case <-closing:
			return unavailable("the server is closing")
		case <-cut:
			return errOutage
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// send sends the pending confirmations, and then messages. If there are no messages, it answers one
// keep-alive. Each response has the properties of the subscription. If a response had none, a
// client would take the subscription as neither ordered nor exactly-once.
func (s *stream) send() (sent bool, err error) {
	properties, confirmations := s.sub.properties(), s.confirmations()
	if len(confirmations) > 0 {
		s.sub.sends(s.consumer)
	}
	for _, response := range confirmations {
		response.SubscriptionProperties = properties
		if err := s.Send(response); err != nil {
			return false, err
		}
	}
	batch, err := s.sub.batch(s.consumer)
	if err != nil {
		return false, err
	}
	if len(batch) > 0 {
		return true, s.SendMsg(appendProperties(newFrame(batch), properties))
	}
	if !s.pinged() {
		return false, nil
	}
	s.sub.sends(s.consumer)
	return true, s.Send(&pubsubpb.StreamingPullResponse{SubscriptionProperties: properties})
}

func (s *stream) confirmations() []*pubsubpb.StreamingPullResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := s.pending
	s.pending = nil
	return pending
}

// pinged removes one keep-alive that is to be answered, and reports whether
// there was one.
func (s *stream) pinged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pings == 0 {
		return false
	}
	s.pings--
	return true
}

func (s *subscription) properties() *pubsubpb.StreamingPullResponse_SubscriptionProperties {
	s.lock()
	defer s.unlock()
	return &pubsubpb.StreamingPullResponse_SubscriptionProperties{
		ExactlyOnceDeliveryEnabled: s.exactlyOnce, MessageOrderingEnabled: s.ordered,
	}
}

// sends marks c as sending, because c sends something else than messages. c may have got a signal for
// messages just before. So sends wakes another consumer for those messages.
func (s *subscription) sends(c *consumer) {
	s.lock()
	defer s.unlock()
	c.sending = true
	s.wakeIfWork()
}

// batch takes the next messages for c. If messages are left in the subscription, it then wakes a
// consumer that has room.
func (s *subscription) batch(c *consumer) ([]delivery, error) {
	s.lock()
	defer s.unlock()
	if s.gone != nil {
		return nil, s.gone
	}
	limit := batchLimit
	if len(s.consumers) > 1 {
		limit = sharedBatchLimit
	}
	batch := s.take(c, limit)
	c.sending = c.streaming && len(batch) > 0
	s.wakeIfWork()
	return s.deliveries(batch), nil
}

// receive reads and carries out the client's requests. If the client closes its side, receive
// returns nil, which ends the stream without an error.
func (s *stream) receive() error {
	for {
		request, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := onlyFirst(request); err != nil {
			return err
		}
		if err := s.settle(request); err != nil {
			return err
		}
	}
}

// onlyFirst refuses a request with a field that only the first request of a
// stream may set.
func onlyFirst(request *pubsubpb.StreamingPullRequest) error {
	for field, set := range map[string]bool{
		"subscription":             request.GetSubscription() != "",
		"client_id":                request.GetClientId() != "",
		"max_outstanding_messages": request.GetMaxOutstandingMessages() != 0,
		"max_outstanding_bytes":    request.GetMaxOutstandingBytes() != 0,
	} {
		if set {
			return resource.Invalid(field, "it is set by the first request of a stream")
		}
	}
	return nil
}
