package localpubsub_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/localpubsub"
)

const (
	topicName        = "projects/p/topics/events"
	subscriptionName = "projects/p/subscriptions/events"
	patience         = 2 * time.Minute
)

var worldTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// TestMain lets the test binary run as a subscriber that is killed.
func TestMain(m *testing.M) {
	if os.Getenv(subscriberMode) != "" {
		subscribe()
	}
	m.Run()
}

// world is a server with a still clock, and its raw clients.
type world struct {
	*localpubsub.Server
	pubsubpb.PublisherClient
	pubsubpb.SubscriberClient

	t     testing.TB
	clock *localpubsub.Clock
	conn  *grpc.ClientConn
}

func newWorld(t testing.TB, options localpubsub.Options) *world {
	t.Helper()
	if options.Clock == nil {
		options.Clock = localpubsub.NewStillClock(worldTime)
	}
	server, err := localpubsub.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	w := connect(t, server.Addr())
	w.Server, w.clock = server, options.Clock
	return w
}

// connect returns a world for a server that the caller manages.
func connect(t testing.TB, addr string, options ...grpc.DialOption) *world {
	t.Helper()
	conn, err := grpc.NewClient(addr, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &world{
		PublisherClient: pubsubpb.NewPublisherClient(conn), SubscriberClient: pubsubpb.NewSubscriberClient(conn),
		t: t, conn: conn,
	}
}

func (w *world) context() context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *world) topic() {
	w.t.Helper()
	if _, err := w.CreateTopic(w.context(), &pubsubpb.Topic{Name: topicName}); err != nil {
		w.t.Fatal(err)
	}
}

// subscribe creates a subscription, and its topic if there is none.
func (w *world) subscribe(s *pubsubpb.Subscription) {
	w.t.Helper()
	if _, err := w.GetTopic(w.context(), &pubsubpb.GetTopicRequest{Topic: topicName}); err != nil {
		w.topic()
	}
	if s.Name == "" {
		s.Name = subscriptionName
	}
	s.Topic = topicName
	if _, err := w.CreateSubscription(w.context(), s); err != nil {
		w.t.Fatal(err)
	}
}

// publish sends one message per text, all with one key.
func (w *world) publish(key string, texts ...string) (ids []string) {
	w.t.Helper()
	req := &pubsubpb.PublishRequest{Topic: topicName}
	for _, text := range texts {
		req.Messages = append(req.Messages, &pubsubpb.PubsubMessage{Data: []byte(text), OrderingKey: key})
	}
	answer, err := w.Publish(w.context(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer.GetMessageIds()
}

// pull takes the messages that are available, without waiting.
func (w *world) pull() []*pubsubpb.ReceivedMessage {
	w.t.Helper()
	return w.pullUpTo(1000)
}

func (w *world) pullUpTo(n int32) []*pubsubpb.ReceivedMessage {
	w.t.Helper()
	answer, err := w.Pull(w.context(), &pubsubpb.PullRequest{
		Subscription: subscriptionName, MaxMessages: n, ReturnImmediately: true, //nolint:staticcheck // no wait wanted
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return answer.GetReceivedMessages()
}

func (w *world) ack(messages ...*pubsubpb.ReceivedMessage) {
	w.t.Helper()
	if _, err := w.Acknowledge(w.context(), &pubsubpb.AcknowledgeRequest{
		Subscription: subscriptionName, AckIds: ackIDs(messages),
	}); err != nil {
		w.t.Fatal(err)
	}
}

// modify sets deadlines; zero is a nack.
func (w *world) modify(seconds int32, messages ...*pubsubpb.ReceivedMessage) {
	w.t.Helper()
	if _, err := w.ModifyAckDeadline(w.context(), &pubsubpb.ModifyAckDeadlineRequest{
		Subscription: subscriptionName, AckIds: ackIDs(messages), AckDeadlineSeconds: seconds,
	}); err != nil {
		w.t.Fatal(err)
	}
}

func ackIDs(messages []*pubsubpb.ReceivedMessage) (ids []string) {
	for _, m := range messages {
		ids = append(ids, m.GetAckId())
	}
	return ids
}

func texts(messages []*pubsubpb.ReceivedMessage) (all []string) {
	for _, m := range messages {
		all = append(all, string(m.GetMessage().GetData()))
	}
	return all
}

func wantTexts(t testing.TB, got []*pubsubpb.ReceivedMessage, want ...string) {
	t.Helper()
	if !slices.Equal(texts(got), want) {
		t.Fatalf("received %q, want %q", texts(got), want)
	}
}

// numbered returns prefix0, prefix1 and so on.
func numbered(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(prefix, i))
	}
	return all
}

type stream struct {
	pubsubpb.Subscriber_StreamingPullClient

	w          *world
	cancel     context.CancelFunc
	properties *pubsubpb.StreamingPullResponse_SubscriptionProperties
	early      []*pubsubpb.ReceivedMessage // that arrived before a call of receive
}

// stream opens a StreamingPull.
func (w *world) stream(maxMessages int64) *stream {
	w.t.Helper()
	return w.streamOf(&pubsubpb.StreamingPullRequest{MaxOutstandingMessages: maxMessages})
}

// streamOf opens a StreamingPull by a request with limits.
func (w *world) streamOf(first *pubsubpb.StreamingPullRequest) *stream {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	w.t.Cleanup(cancel)
	opened, err := w.StreamingPull(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	first.Subscription, first.StreamAckDeadlineSeconds = subscriptionName, 10
	if err := opened.Send(first); err != nil {
		w.t.Fatal(err)
	}
	s := &stream{Subscriber_StreamingPullClient: opened, w: w, cancel: cancel}
	s.greet()
	return s
}

// greet waits until the server has registered the stream: until it answers a
// keep-alive, or sends messages.
func (s *stream) greet() {
	s.w.t.Helper()
	if err := s.Send(&pubsubpb.StreamingPullRequest{}); err != nil {
		s.w.t.Fatal(err)
	}
	for {
		response, err := s.Recv()
		if err != nil {
			s.w.t.Fatal(err)
		}
		s.properties = response.GetSubscriptionProperties()
		if len(response.GetReceivedMessages()) == 0 {
			return
		}
		s.early = append(s.early, response.GetReceivedMessages()...)
	}
}

// receive waits for n messages.
func (s *stream) receive(n int) (all []*pubsubpb.ReceivedMessage) {
	s.w.t.Helper()
	all, s.early = s.early, nil
	for len(all) < n {
		response, err := s.Recv()
		if err != nil {
			s.w.t.Fatalf("after %q: %v", texts(all), err)
		}
		all = append(all, response.GetReceivedMessages()...)
	}
	return all
}

// quiet checks that no message is on its way: a keep-alive is answered after
// all responses that were sent before it.
func (s *stream) quiet() {
	s.w.t.Helper()
	if err := s.Send(&pubsubpb.StreamingPullRequest{}); err != nil {
		s.w.t.Fatal(err)
	}
	response, err := s.Recv()
	if err != nil {
		s.w.t.Fatal(err)
	}
	if n := len(response.GetReceivedMessages()); n > 0 {
		s.w.t.Fatalf("received %q, want nothing", texts(response.GetReceivedMessages()))
	}
}
