package localpubsub

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// TestAStreamThatBeginsWithAnOutage: an outage begins after the stream was let through, and before its first request.
func TestAStreamThatBeginsWithAnOutage(t *testing.T) {
	t.Parallel()
	s, calls := racing(t, &pubsubpb.Subscription{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	late := &lateStream{ctx: ctx, begin: func() {
		if err := s.SetFaults(1, Fault{Kind: Outage, Method: streamingPull}); err != nil {
			t.Error(err)
		}
	}}
	err := s.faults.stream(calls, late, &grpc.StreamServerInfo{FullMethod: "/google.pubsub.v1.Subscriber/StreamingPull"},
		func(_ any, stream grpc.ServerStream) error {
			return calls.StreamingPull(&grpc.GenericServerStream[pubsubpb.StreamingPullRequest, pubsubpb.StreamingPullResponse]{ServerStream: stream})
		})
	if err != errOutage { //nolint:errorlint // not wrapped
		t.Errorf("the stream ends with %v", err)
	}
}

// lateStream is a stream that calls begin before its first request comes. It has no second request.
type lateStream struct {
	ctx   context.Context //nolint:containedctx // as of a stream
	begin func()
	sent  bool
}

func (s *lateStream) RecvMsg(m any) error {
	if s.sent {
		<-s.ctx.Done()
		return s.ctx.Err()
	}
	s.sent = true
	s.begin()
	proto.Merge(m.(proto.Message), &pubsubpb.StreamingPullRequest{Subscription: racedSubscription, StreamAckDeadlineSeconds: 10})
	return nil
}

func (s *lateStream) Context() context.Context     { return s.ctx }
func (s *lateStream) SendMsg(any) error            { return nil }
func (s *lateStream) SetHeader(metadata.MD) error  { return nil }
func (s *lateStream) SendHeader(metadata.MD) error { return nil }
func (s *lateStream) SetTrailer(metadata.MD)       {}
