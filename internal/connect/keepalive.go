package connect

import (
	"context"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// keepAlive finds lost connections. A host or a network may vanish without closing its connections.
// While a call is open, gRPC pings a connection that has been silent for Time. If the ping gets no
// answer within Timeout, gRPC closes the connection and opens another. A test shortens the times.
var keepAlive = keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 5 * time.Second}

// askTime bounds the request to the broker that answerPings makes for a ping of the client. It is below the
// 15 s for which the client waits for the answer to a ping.
const askTime = 10 * time.Second

// answerPings answers the keep-alive pings of idle subscriptions, as the real service would.
//
// The client sends an empty request on an idle StreamingPull every 30 s. If the server does not
// answer, the client closes the stream and opens another. The official emulator never answers. A
// subscriber that has been idle for minutes then spends most of the time in the pause between two
// streams, and the next message comes 14 to 18 s late.
//
// For each ping, answerPings asks the broker for the subscription, and answers the ping when the
// broker has answered. So a ping still shows whether the broker answers. The emulator also needs
// these calls: like other gRPC servers, it closes a connection after a few pings of gRPC
// (keepAlive) if it sends nothing itself in between.
func answerPings(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, conn, method, opts...)
	if err != nil || method != pubsubpb.Subscriber_StreamingPull_FullMethodName {
		return stream, err
	}
	s := &answered{
		ClientStream: stream, ctx: ctx, conn: conn,
		responses: make(chan *pubsubpb.StreamingPullResponse), pings: make(chan struct{}, 1),
	}
	go s.receive(ctx)
	return s, nil
}

// answered is one StreamingPull. It lives as long as the context that the stream was opened with.
// The client cancels that context when it is done with the stream.
type answered struct {
	grpc.ClientStream

	ctx  context.Context //nolint:containedctx // it ends with the stream that it belongs to
	conn *grpc.ClientConn

	subscription string // only SendMsg uses it

	responses chan *pubsubpb.StreamingPullResponse // closed when the stream has ended
	ended     error                                // why the stream has ended; readable once responses is closed
	pings     chan struct{}
	last      *pubsubpb.StreamingPullResponse_SubscriptionProperties // only RecvMsg uses it
}

func (s *answered) receive(ctx context.Context) {
	defer close(s.responses)
	for {
		response := new(pubsubpb.StreamingPullResponse)
		if s.ended = s.ClientStream.RecvMsg(response); s.ended != nil {
			return
		}
		select {
		case s.responses <- response:
		case <-ctx.Done():
			s.ended = status.FromContextError(ctx.Err()).Err()
			return
		}
	}
}

// SendMsg passes every request on. The first request names the subscription. All others are pings,
// because the client acknowledges messages by separate calls.
func (s *answered) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	request, ok := m.(*pubsubpb.StreamingPullRequest)
	switch {
	case !ok || err != nil:
	case request.GetSubscription() != "":
		s.subscription = request.GetSubscription()
	default:
		go s.ask(s.subscription)
	}
	return err
}

// ask answers a ping if the broker answers. An error that the broker returns is an answer, too.
func (s *answered) ask(subscription string) {
	ctx, cancel := context.WithTimeout(s.ctx, askTime)
	defer cancel()
	err := s.conn.Invoke(ctx, pubsubpb.Subscriber_GetSubscription_FullMethodName,
		&pubsubpb.GetSubscriptionRequest{Subscription: subscription}, new(pubsubpb.Subscription))
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Unavailable, codes.Canceled:
		return
	default:
	}
	select {
	case s.pings <- struct{}{}:
	default: // one answer is enough for both pings
	}
}

// RecvMsg also answers pings. The answer repeats the last properties, because without them the
// client would take ordering for switched off.
func (s *answered) RecvMsg(m any) error {
	into := m.(*pubsubpb.StreamingPullResponse)
	select {
	case response, ok := <-s.responses:
		if !ok {
			return s.ended
		}
		s.last = response.GetSubscriptionProperties()
		response.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
			into.ProtoReflect().Set(field, value) // passes the field's value on without a copy
			return true
		})
	case <-s.pings:
		into.SubscriptionProperties = s.last
	}
	return nil
}
