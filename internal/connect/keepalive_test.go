package connect

import (
	"context"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"example.com/lockstep/internal/porttest"
)

// silent is a Pub/Sub that answers no ping: it sends only the test's messages. While it is away, it refuses
// all other calls.
type silent struct {
	pubsubpb.UnimplementedSubscriberServer

	away  atomic.Bool
	asked chan string // the subscriptions that the client has asked for
	pings chan *pubsubpb.StreamingPullRequest
	say   chan *pubsubpb.StreamingPullResponse // closed: end the stream
}

func (s *silent) StreamingPull(stream pubsubpb.Subscriber_StreamingPullServer) error {
	go func() {
		for {
			request, err := stream.Recv()
			if err != nil {
				return
			}
			s.pings <- request
		}
	}()
	for {
		select {
		case response, ok := <-s.say:
			if !ok {
				return status.Error(codes.Unavailable, "closing")
			}
			if err := stream.Send(response); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (s *silent) GetSubscription(_ context.Context, r *pubsubpb.GetSubscriptionRequest) (*pubsubpb.Subscription, error) {
	s.asked <- r.GetSubscription()
	if s.away.Load() {
		return nil, status.Error(codes.Unavailable, "away")
	}
	return nil, status.Error(codes.PermissionDenied, "not yours") // an answer, too
}

// If the broker does not answer, the client gets no answer to its ping either, and opens another stream.
func TestPingIsNotAnsweredForAnAbsentServer(t *testing.T) {
	t.Parallel()
	server, stream := openStream(t.Context(), t)
	server.away.Store(true)
	for range 20 {
		send(t, stream, &pubsubpb.StreamingPullRequest{})
		<-server.pings
		if got := <-server.asked; got != "s" {
			t.Fatalf("the client asks for the subscription %q", got)
		}
		server.say <- &pubsubpb.StreamingPullResponse{ReceivedMessages: []*pubsubpb.ReceivedMessage{{AckId: "a"}}}
		if got := receive(t, stream); len(got.ReceivedMessages) != 1 {
			t.Fatalf("a ping was answered with %v", got)
		}
	}
}

func TestPingIsAnsweredForTheServer(t *testing.T) {
	t.Parallel()
	server, stream := openStream(t.Context(), t)
	send(t, stream, &pubsubpb.StreamingPullRequest{})
	if got := receive(t, stream); got.GetSubscriptionProperties() != nil {
		t.Errorf("first answer = %v, want an empty one", got)
	}
	if got := <-server.pings; got.GetSubscription() != "" {
		t.Errorf("server got %v, want the ping itself too", got)
	}

	want := &pubsubpb.StreamingPullResponse{
		ReceivedMessages:       []*pubsubpb.ReceivedMessage{{AckId: "a", Message: &pubsubpb.PubsubMessage{Data: []byte("x"), OrderingKey: "k"}}},
		SubscriptionProperties: &pubsubpb.StreamingPullResponse_SubscriptionProperties{MessageOrderingEnabled: true},
	}
	server.say <- want
	if diff := cmp.Diff(want, receive(t, stream), protocmp.Transform()); diff != "" {
		t.Errorf("message changed on the way (-sent +received):\n%s", diff)
	}

	send(t, stream, &pubsubpb.StreamingPullRequest{})
	if got := receive(t, stream); !got.GetSubscriptionProperties().GetMessageOrderingEnabled() || len(got.ReceivedMessages) > 0 {
		t.Errorf("answer after a message = %v, want its properties and no messages", got)
	}
}

func TestStreamEndReachesTheClient(t *testing.T) {
	t.Parallel()
	server, stream := openStream(t.Context(), t)
	close(server.say)
	for range 2 {
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("receive = %v, want the server's error, each time", err)
		}
	}
}

func TestCancelledStreamEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	server, stream := openStream(ctx, t)
	server.say <- &pubsubpb.StreamingPullResponse{} // not received before the cancellation
	cancel()
	for {
		_, err := stream.Recv()
		if status.Code(err) == codes.Canceled {
			return
		}
		if err != nil {
			t.Fatalf("receive = %v, want Canceled", err)
		}
	}
}

func openStream(ctx context.Context, tb testing.TB) (*silent, pubsubpb.Subscriber_StreamingPullClient) {
	tb.Helper()
	server := &silent{asked: make(chan string, 8), pings: make(chan *pubsubpb.StreamingPullRequest, 8), say: make(chan *pubsubpb.StreamingPullResponse)}
	l := porttest.Listen(tb)
	g := grpc.NewServer()
	pubsubpb.RegisterSubscriberServer(g, server)
	go g.Serve(l)
	tb.Cleanup(g.Stop)
	conn, err := grpc.NewClient(l.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithChainStreamInterceptor(answerPings))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	// A silent stream must fail the test, not hang it.
	ctx, cancel := context.WithTimeout(ctx, patience)
	tb.Cleanup(cancel)
	stream, err := pubsubpb.NewSubscriberClient(conn).StreamingPull(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	send(tb, stream, &pubsubpb.StreamingPullRequest{Subscription: "s"})
	if first := <-server.pings; first.GetSubscription() != "s" {
		tb.Fatalf("first request = %v", first)
	}
	return server, stream
}

func send(tb testing.TB, stream pubsubpb.Subscriber_StreamingPullClient, r *pubsubpb.StreamingPullRequest) {
	tb.Helper()
	if err := stream.Send(r); err != nil {
		tb.Fatal(err)
	}
}

func receive(tb testing.TB, stream pubsubpb.Subscriber_StreamingPullClient) *pubsubpb.StreamingPullResponse {
	tb.Helper()
	r, err := stream.Recv()
	if err != nil {
		tb.Fatal(err)
	}
	return r
}
