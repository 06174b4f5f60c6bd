package localpubsub

import (
	"context"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"example.com/lockstep/localpubsub/internal/resource"
)

// pullWait is the maximum time that a pull waits for its first message, even if the caller would
// wait longer.
const pullWait = 20 * time.Second

// Pull returns up to max_messages messages as soon as there is a message. If no message comes
// within pullWait, it returns none. After Pull has returned messages of a key, no consumer gets
// further messages of the key until these messages are settled.
func (s subscriber) Pull(ctx context.Context, req *pubsubpb.PullRequest) (*pubsubpb.PullResponse, error) {
	found, err := s.subscription(req.GetSubscription())
	if err != nil {
		return nil, err
	}
	if req.GetMaxMessages() <= 0 {
		return nil, resource.Invalid("max_messages", "%d is not positive", req.GetMaxMessages())
	}
	found.lock()
	c := newConsumer(found.ackDeadline)
	found.unlock()
	c.maxMessages = int64(req.GetMaxMessages())
	if err := found.open(c); err != nil {
		return nil, err
	}
	defer found.close(c)
	wait := time.NewTimer(pullWait)
	defer wait.Stop()
	for {
		batch, err := found.batch(c)
		if err != nil {
			return nil, err
		}
		//nolint:staticcheck // deprecated for callers, still served
		if len(batch) > 0 || req.GetReturnImmediately() {
			answer := new(pubsubpb.PullResponse)
			return answer, proto.Unmarshal(newFrame(batch), answer)
		}
		select {
		case <-c.work:
		case <-wait.C:
			return new(pubsubpb.PullResponse), nil
		case <-s.closing:
			return nil, unavailable("the server is closing")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Acknowledge acknowledges messages. Without exactly-once delivery it returns OK even if some
// acknowledgements did not count.
func (s subscriber) Acknowledge(_ context.Context, req *pubsubpb.AcknowledgeRequest) (*emptypb.Empty, error) {
	found, err := s.subscription(req.GetSubscription())
	if err != nil {
		return nil, err
	}
	failed, err := found.acknowledge(req.GetAckIds())
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, failed.err()
}

// ModifyAckDeadline sets the end of leases to a number of seconds from now. Zero seconds are a
// nack.
func (s subscriber) ModifyAckDeadline(_ context.Context, req *pubsubpb.ModifyAckDeadlineRequest) (*emptypb.Empty, error) {
	found, err := s.subscription(req.GetSubscription())
	if err != nil {
		return nil, err
	}
	if err := resource.CheckModify(req.GetAckDeadlineSeconds(), "ack_deadline_seconds"); err != nil {
		return nil, err
	}
	failed, err := found.modify(req.GetAckIds(), time.Duration(req.GetAckDeadlineSeconds())*time.Second)
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, failed.err()
}
