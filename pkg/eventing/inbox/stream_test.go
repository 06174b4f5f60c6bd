package inbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/localpubsub"
)

// world is a local Pub/Sub with a subscription as Terraform makes it, and a consumer on it
// with an unavailable owner.
type world struct {
	*bench

	clock  *localpubsub.Clock
	server *localpubsub.Server
	c      *Consumer
	stop   func()

	mu     sync.Mutex
	grants []load        // of the streams that were opened
	lease  time.Duration // of the latest stream
	// brought is what the latest of them brought, received what all did.
	brought, received load
	// deaf says that the broker does not hear of a half-close.
	deaf atomic.Bool
	// answer is that of the broker to a half-close, if it is no plain end.
	answer error
	// answered is closed after that.
	answered chan struct{}
	// arrived has the ids of the messages that came, most the highest count of
	// deliveries among them.
	arrived map[string]bool
	most    int
	waiting atomic.Int64 // bytes in callbacks
	peak    atomic.Int64 // bytes in hand and in callbacks, at most
}

const worldBytes = 4 << 20

// grant is a stream as it is opened.
type grant struct {
	grpc.ClientStream

	to *world
}

func (g *grant) SendMsg(m any) error {
	if r, ok := m.(*pubsubpb.StreamingPullRequest); ok && r.GetSubscription() != "" {
		g.to.mu.Lock()
		g.to.grants = append(g.to.grants, load{r.GetMaxOutstandingMessages(), r.GetMaxOutstandingBytes()})
		g.to.lease = time.Duration(r.GetStreamAckDeadlineSeconds()) * time.Second
		g.to.brought = load{}
		g.to.mu.Unlock()
	}
	return g.ClientStream.SendMsg(m)
}

func (g *grant) CloseSend() error {
	if g.to.deaf.Load() {
		return nil
	}
	return g.ClientStream.CloseSend()
}

func (g *grant) RecvMsg(m any) error {
	err := g.ClientStream.RecvMsg(m)
	if errors.Is(err, io.EOF) {
		g.to.mu.Lock()
		defer g.to.mu.Unlock()
		if g.to.answer != nil {
			close(g.to.answered)
			return g.to.answer
		}
		return err
	}
	if r, ok := m.(*pubsubpb.StreamingPullResponse); ok && err == nil {
		g.to.mu.Lock()
		for _, received := range r.GetReceivedMessages() {
			one := load{1, int64(proto.Size(received.GetMessage()))}
			g.to.brought, g.to.received = g.to.brought.plus(one), g.to.received.plus(one)
		}
		g.to.mu.Unlock()
	}
	return err
}

func newWorld(t *testing.T, maxDeliveries int32) *world {
	t.Helper()
	listener := porttest.Listen(t)
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}
	return newWorldOn(t, pgtest.New(t), listener, dial, maxDeliveries, worldBytes)
}

// newWorldOn has its broker behind listener, to which dial leads.
func newWorldOn(
	t *testing.T, pg *pgtest.DB, listener net.Listener, dial func(context.Context, string) (net.Conn, error), maxDeliveries int32, bytes int64,
) *world {
	t.Helper()
	w := &world{bench: newModel(t, pg), arrived: map[string]bool{}, clock: localpubsub.NewClock()}
	var err error
	if w.server, err = localpubsub.Start(localpubsub.Options{Listener: listener, Clock: w.clock}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.server.Close() })
	streams := NewStreams()
	see := func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := open(ctx, desc, conn, method, opts...)
		return &grant{stream, w}, err
	}
	conn, err := grpc.NewClient("passthrough:///"+w.server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial), streams.DialOption(), grpc.WithChainStreamInterceptor(see))
	if err != nil {
		t.Fatal(err)
	}
	if w.client, err = pubsub.NewClient(t.Context(), "test", option.WithGRPCConn(conn)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.client.Close() })
	for _, name := range []string{topic, deadTopic} {
		if _, err := w.client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*pubsubpb.Subscription{
		{Name: "projects/test/subscriptions/" + subscription, Topic: topic, EnableMessageOrdering: true, AckDeadlineSeconds: 10,
			RetryPolicy:      &pubsubpb.RetryPolicy{MinimumBackoff: durationpb.New(time.Second), MaximumBackoff: durationpb.New(time.Minute)},
			DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: deadTopic, MaxDeliveryAttempts: maxDeliveries}},
		{Name: "projects/test/subscriptions/" + subscription + ".dlq", Topic: deadTopic, AckDeadlineSeconds: 10},
	} {
		if _, err := w.client.SubscriptionAdminClient.CreateSubscription(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	h := w.handler(decode)
	w.c = NewConsumer(w.db, w.client, subscription, h, slog.New(slog.DiscardHandler), func() {}, Options{Bytes: bytes, Streams: streams})
	leave, err := streams.enter(w.c.subscriber.String(), w.c.budget)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.c.RunFrom(ctx, w.receive) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		leave()
	})
	t.Cleanup(w.stop)
	return w
}

// receive is the real one, watched.
func (w *world) receive(ctx context.Context, deliver func(context.Context, *pubsub.Message)) error {
	return w.c.pull(ctx, func(ctx context.Context, m *pubsub.Message) {
		bytes := loadOf(m).bytes
		w.mu.Lock()
		w.arrived[m.ID] = true
		if m.DeliveryAttempt != nil {
			w.most = max(w.most, *m.DeliveryAttempt)
		}
		w.mu.Unlock()
		w.waiting.Add(bytes)
		w.peak.Store(max(w.peak.Load(), w.waiting.Load()+w.c.budget.inHand().bytes))
		deliver(ctx, m)
		w.waiting.Add(-bytes)
	})
}

func (w *world) came() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.arrived)
}

func (w *world) opened() []load {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.grants
}

// isFull says that a callback waits for room.
func (w *world) isFull() bool {
	w.c.budget.mu.Lock()
	defer w.c.budget.mu.Unlock()
	return len(w.c.budget.queue) > 0
}

// untilQuiet returns when no message is on its way: the latest stream has brought as
// much as it was opened for, or there is nothing more to bring.
func (w *world) untilQuiet(t *testing.T, published int) {
	t.Helper()
	pgtest.Until(t, "the stream has brought what it was opened for", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.grants) == 0 {
			return false // the first stream is being opened
		}
		latest := w.grants[len(w.grants)-1]
		return w.received.messages == int64(published) || w.brought.messages >= latest.messages || w.brought.bytes >= latest.bytes
	})
}

// publishGaps publishes n events of new aggregates that miss a version.
func (w *world) publishGaps(t *testing.T, from, n int) {
	t.Helper()
	for i := range n {
		e := event(fmt.Sprint("gap", from+i), 2)
		e.Payload = make([]byte, 32<<10)
		w.publishRaw(t, e.Message())
	}
}

// breakStreams ends the open stream, as the service does now and then.
func (w *world) breakStreams(t *testing.T) {
	t.Helper()
	for _, faults := range [][]localpubsub.Fault{{{Kind: localpubsub.Outage, Method: "StreamingPull"}}, nil} {
		if err := w.server.SetFaults(1, faults...); err != nil {
			t.Fatal(err)
		}
	}
}

// deadLetteredByTheBroker are the messages in the subscription's dead letters.
func (w *world) deadLetteredByTheBroker(t *testing.T) int {
	t.Helper()
	got, err := w.client.SubscriptionAdminClient.Pull(t.Context(), &pubsubpb.PullRequest{
		Subscription: "projects/test/subscriptions/" + subscription + ".dlq", MaxMessages: 1000, ReturnImmediately: true, //nolint:staticcheck // nothing is expected
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(got.GetReceivedMessages())
}

// A stream that breaks while a backlog is in hand brings no more than fits, and
// once nothing fits each brings one message, which waits: the broker counts one
// delivery of each, however often streams break.
func TestInHandIsBoundedOverBrokenStreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5)
	const part, parts, message, fits = 16, 9, 32 << 10, worldBytes / (65 << 10)
	for i := range parts {
		w.publishGaps(t, i*part, part)
		w.untilQuiet(t, (i+1)*part) // a stream that breaks loses what is on its way
		w.reopen(t)
	}
	narrow := 0
	for i, g := range w.opened() {
		if g.bytes > worldBytes/2 || i > 0 && g.bytes >= worldBytes/2 {
			t.Errorf("stream %d was opened for %d bytes", i, g.bytes)
		}
		if g.bytes < message {
			narrow++
		}
	}
	if n := w.came(); n > fits+narrow || n < fits+narrow/2 || narrow < parts/3 || w.peak.Load() > int64(worldBytes+(narrow+1)*(66<<10)) {
		t.Errorf("%d messages came, with %d bytes; %d fit, and one for each of %d later streams", n, w.peak.Load(), fits, narrow)
	}
	for i := range part * parts {
		w.setOwner(fmt.Sprint("gap", i), 2)
	}
	w.eventually(t, part*parts, withDone)
	pgtest.Until(t, "a stream is opened for the whole again", func() bool {
		all := w.opened()
		return all[len(all)-1].bytes >= worldBytes/2*3/4
	})
	w.stop()
	if w.most > 1 || w.deadLetteredByTheBroker(t) != 0 {
		t.Errorf("up to %d deliveries are counted, %d dead letters", w.most, w.deadLetteredByTheBroker(t))
	}
	if left := w.c.budget.inHand(); left != (load{}) {
		t.Errorf("%v in hand at the end", left)
	}
}

// The same while everything is in motion: more is published than an owner that
// comes and goes lets pass, and streams break all the time. LOCKSTEP_FULL=1 is
// ten minutes of it.
func TestInHandIsBoundedUnderOverload(t *testing.T) {
	t.Parallel()
	lasts, every := 5*time.Second, 2
	if os.Getenv("LOCKSTEP_FULL") != "" {
		lasts, every = 10*time.Minute, 8
	}
	w := newWorld(t, 100)
	tick, end := time.NewTicker(250*time.Millisecond), time.After(lasts)
	defer tick.Stop()
	published, freed, breaks, heap := 0, 0, 0, uint64(0)
	for running := true; running; {
		select {
		case <-end:
			running = false
		case <-tick.C:
			if published < 5_000 { // of 32 KiB
				w.publishGaps(t, published, 20)
				published += 20
			}
			w.setOwner(fmt.Sprint("gap", freed), 2)
			if freed%every == 0 {
				w.breakStreams(t)
				breaks++
			}
			freed++
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			heap = max(heap, m.HeapInuse)
		}
	}
	w.mu.Lock()
	most := w.most
	w.mu.Unlock()
	t.Logf("%d published, %d breaks, up to %d bytes in hand and in callbacks, heap up to %d MiB, up to %d deliveries counted",
		published, breaks, w.peak.Load(), heap>>20, most)
	// The client bounds the messages that wait in callbacks, to as much as one stream
	// may ask for.
	if w.peak.Load() > worldBytes+worldBytes/2 {
		t.Errorf("up to %d bytes", w.peak.Load())
	}
	for i := range published {
		w.setOwner(fmt.Sprint("gap", i), 2)
	}
	w.eventually(t, published, withDone)
	w.stop()
	if n := w.deadLetteredByTheBroker(t); n != 0 || w.most > 50 {
		t.Errorf("%d dead letters, up to %d deliveries counted of 100", n, w.most)
	}
	if left := w.c.budget.inHand(); left != (load{}) {
		t.Errorf("%v in hand at the end", left)
	}
}

func TestOneConsumerOfASubscriptionOnAConnection(t *testing.T) {
	t.Parallel()
	s := NewStreams()
	leave, err := s.enter("a", &budget{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.enter("a", &budget{}); err == nil {
		t.Error("two on one connection")
	}
	leave()
	if _, err := s.enter("a", &budget{}); err != nil {
		t.Error(err)
	}
	if _, err := (*Streams)(nil).enter("a", nil); err != nil {
		t.Error(err)
	}
}

// Streams without their option on the connection would limit no stream, and the consumer would report failures for ever.
func TestStreamsNeedTheOptionOfTheConnection(t *testing.T) {
	t.Parallel()
	own := NewStreams()
	for name, test := range map[string]struct {
		options []grpc.DialOption
		fails   bool
	}{
		"no option":         {nil, true},
		"of other streams":  {[]grpc.DialOption{NewStreams().DialOption()}, true},
		"its own":           {[]grpc.DialOption{own.DialOption()}, false},
		"behind other ones": {[]grpc.DialOption{NewStreams().DialOption(), own.DialOption()}, false},
	} {
		options := slices.Concat(test.options, []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())})
		conn, err := grpc.NewClient("passthrough:///"+porttest.Addr(t), options...)
		if err != nil {
			t.Fatal(err)
		}
		client, err := pubsub.NewClient(t.Context(), "test", option.WithGRPCConn(conn))
		if err != nil {
			t.Fatal(err)
		}
		if err := own.check(client.SubscriptionAdminClient); (err != nil) != test.fails {
			t.Errorf("%s: %v", name, err)
		}
		c := NewConsumer(nil, client, subscription, nil, slog.New(slog.DiscardHandler), func() {}, Options{Streams: own})
		if test.fails && c.Run(t.Context()) == nil {
			t.Errorf("%s: the consumer has run", name)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Once a consumer ends, it opens no stream that brings further messages.
func TestNoStreamIsOpenedAtTheEnd(t *testing.T) {
	t.Parallel()
	p := &openStreams{open: map[*openStream]struct{}{}}
	if !p.add(&openStream{ctx: t.Context()}) || p.ends() {
		t.Error("no stream is opened before the end")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	p = &openStreams{open: map[*openStream]struct{}{}}
	p.end()
	if p.add(&openStream{ctx: ended}) || !p.ends() || len(p.open) != 0 {
		t.Error("a stream is opened after the end")
	}
}

// A stream that is opened while the broker refuses connections opens as soon as the broker takes them.
func TestAStreamWaitsForTheConnection(t *testing.T) {
	t.Parallel()
	addr := porttest.Addr(t)
	wait := backoff.DefaultConfig
	wait.BaseDelay, wait.MaxDelay = 10*time.Millisecond, 10*time.Millisecond
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: wait}), NewStreams().DialOption())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	opened := make(chan error, 1)
	go func() {
		_, err := pubsubpb.NewSubscriberClient(conn).StreamingPull(ctx)
		opened <- err
	}()
	for state := conn.GetState(); state != connectivity.TransientFailure; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			t.Fatal("a connection without a server")
		}
	}
	server, err := localpubsub.Start(localpubsub.Options{Addr: addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	if err := <-opened; err != nil {
		t.Errorf("the stream did not wait: %v", err)
	}
}

// The client half-closes a stream on which the broker has left a keep-alive unanswered. Such a broker may
// leave the half-close unanswered, too. The client then opens another stream.
func TestAStreamThatTheBrokerDoesNotEndIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5)
	pgtest.Until(t, "a stream is open", func() bool { return len(w.opened()) == 1 })
	w.deaf.Store(true)
	streams := w.c.options.Streams.of(w.c.subscriber.String())
	streams.mu.Lock()
	open := slices.Collect(maps.Keys(streams.open))
	streams.mu.Unlock()
	for _, one := range open {
		if err := one.CloseSend(); err != nil {
			t.Fatal(err)
		}
	}
	pgtest.Until(t, "another stream is open", func() bool { return len(w.opened()) == 2 })
	w.publishRaw(t, event("a", 1).Message())
	w.eventually(t, 1, withDone)
}
