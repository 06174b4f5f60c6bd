package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	vkit "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Streams limits each stream that the client opens or reopens to the messages for which the
// consumer has room. Without Streams the client asks for the whole budget with every stream. After
// some breaks of the connection more messages are then under way than fit into the budget. The
// client leaves the excess messages unread in the connection. No process extends the leases of
// these messages, so the broker delivers them again and again, and counts deliveries that no
// consumer received.
//
// Streams also lets a stream wait for the connection. Without Streams the client pauses for up to
// half a minute after each stream that could not be opened, also when the broker is back meanwhile.
//
// When a consumer ends, Streams also makes the broker send the messages that are on their way,
// and no more. Without Streams the client leaves these messages unread, and they come again only
// when their leases end, up to 30 s later.
//
// Streams belongs to one connection. [Streams.DialOption] goes into the client of that
// connection. Streams itself goes into the [Options] of the consumers that use the connection.
// [Consumer.Run] fails if the connection lacks the option. Over one connection with Streams, a
// subscription can have only one consumer.
type Streams struct {
	mu             sync.Mutex
	bySubscription map[string]*openStreams
}

// NewStreams returns the streams of a future connection.
func NewStreams() *Streams { return &Streams{bySubscription: map[string]*openStreams{}} }

// DialOption returns the option for dialing the client's connection.
func (s *Streams) DialOption() grpc.DialOption { return grpc.WithChainStreamInterceptor(s.intercept) }

// enter limits the streams of a subscription to the budget b until leave is called. If s is nil,
// enter does nothing.
func (s *Streams) enter(subscription string, b *budget) (leave func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bySubscription[subscription] != nil {
		return nil, fmt.Errorf("two consumers of %s on one connection", subscription)
	}
	s.bySubscription[subscription] = &openStreams{budget: b, open: map[*openStream]struct{}{}, since: time.Now()}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.bySubscription, subscription)
	}, nil
}

// probe marks a call of StreamingPull by which check finds out whether the connection has the DialOption of
// streams. intercept then refuses the call, and sets intercepted.
type probe struct {
	streams     *Streams
	intercepted bool
}

type probeKey struct{}

// check returns an error if the connection of client was dialed without the DialOption of s. If s is
// nil, there is nothing to check. check sends nothing, because the context of its call has ended.
func (s *Streams) check(client *vkit.SubscriptionAdminClient) error {
	if s == nil {
		return nil
	}
	p := &probe{streams: s}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), probeKey{}, p))
	cancel()
	_, _ = client.StreamingPull(ctx) // which fails in any case
	if !p.intercepted {
		return errors.New("the Streams of the Options are not in the client: dial its connection with Streams.DialOption")
	}
	return nil
}

// of returns the streams of a subscription's consumer. It returns nil if there is no consumer, or
// if s is nil.
func (s *Streams) of(subscription string) *openStreams {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bySubscription[subscription]
}

func (s *Streams) intercept(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if !strings.HasSuffix(method, "/StreamingPull") {
		return open(ctx, desc, conn, method, opts...)
	}
	if p, ok := ctx.Value(probeKey{}).(*probe); ok && p.streams == s {
		p.intercepted = true
		return nil, context.Canceled
	}
	own, cancel := context.WithCancelCause(ctx)
	stream, err := open(own, desc, conn, method, append(slices.Clone(opts), grpc.WaitForReady(true))...)
	if err != nil {
		cancel(err)
		return nil, err
	}
	return &openStream{ClientStream: stream, streams: s, client: ctx, ctx: own, cancel: cancel}, nil
}

// openStream is one StreamingPull.
type openStream struct {
	grpc.ClientStream

	streams *Streams
	// client is the client's context. It ends when the client no longer needs the stream.
	client context.Context //nolint:containedctx // as ctx
	// ctx is the stream's own context. It ends when the stream ends. If it is cancelled earlier,
	// the client opens another stream.
	ctx    context.Context //nolint:containedctx // it ends with the stream that it belongs to
	cancel context.CancelCauseFunc
	// opened is the time of the first request. served says that the broker has sent a message, or that this
	// end has half-closed the stream. refused says that the broker has ended the stream at once.
	opened          time.Time
	served, refused atomic.Bool

	mu     sync.Mutex   // held by requests and by the half-close
	of     *openStreams // the streams of the stream's consumer; nil before the first request
	closed bool         // no request goes to the broker any more
}

// errNotEnded is why CloseSend cancels a stream.
var errNotEnded = errors.New("the broker has not ended the half-closed stream")

// endTime is how long a half-closed stream may take to end.
const endTime = 10 * time.Second

// SendMsg writes the room in the budget into the stream's first request, as the limit of the
// stream. If there is no room, the stream is opened for one message, which then waits in its
// callback. If the stream were not opened, the client's keep-alives would queue up.
//
// After the half-close SendMsg drops the client's keep-alives, because an error would make the
// client cancel the stream.
func (o *openStream) SendMsg(m any) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	request, ok := m.(*pubsubpb.StreamingPullRequest)
	if !ok || request.GetSubscription() == "" {
		return o.ClientStream.SendMsg(m)
	}
	of := o.streams.of(request.GetSubscription())
	if of == nil {
		return o.ClientStream.SendMsg(m)
	}
	o.of = of
	if !of.add(o) {
		o.closed = true // without a request the broker sends nothing
		return nil
	}
	go o.awaitAnswer()
	b, room := of.budget, of.budget.room()
	request.MaxOutstandingMessages = min(request.GetMaxOutstandingMessages(), max(1, room.messages))
	request.MaxOutstandingBytes = min(request.GetMaxOutstandingBytes(), onTheWire(room.bytes))
	if most := b.limit.part(3, 4); !room.covers(most) {
		go o.widen(b, room, most)
	}
	return o.ClientStream.SendMsg(request)
}

// CloseSend half-closes the stream, and cancels it if it has not ended after endTime. The client half-closes
// a stream on which the broker has not answered a keep-alive. Such a broker may not answer the half-close
// either. Without Streams the client's next keep-alive then fails, and the client opens another stream. But
// SendMsg drops that keep-alive.
func (o *openStream) CloseSend() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed = true
		o.served.Store(true)
		late := time.AfterFunc(endTime, func() { o.cancel(errNotEnded) })
		context.AfterFunc(o.ctx, func() { late.Stop() })
	}
	return o.ClientStream.CloseSend()
}

// widen ends the stream when there is room for twice the load room, for which the stream was
// opened. The load to wait for is at least a sixteenth of the budget, and at most the load most,
// which is three quarters of the budget. The client then opens another stream.
//
// widen half-closes the stream, because the server ends a half-closed stream after the messages
// that it has sent. A cancel would lose the messages on their way. Each would come again when its
// lease ends, after leaseTime, and its delivery count would be one higher.
func (o *openStream) widen(b *budget, room, most load) {
	least, twice := b.limit.part(1, 16), room.plus(room)
	enough := load{
		min(max(twice.messages, least.messages), most.messages), min(max(twice.bytes, least.bytes), most.bytes),
	}
	if err := b.wait(o.ctx, enough); err != nil {
		return
	}
	_ = o.CloseSend() // the error of a broken stream does not matter
}

// RecvMsg reports the cancel of CloseSend as a network error. After a network error, as after an
// end without an error, the client opens another stream.
//
// While the consumer ends, RecvMsg does not report the end of a stream until the client gives the
// stream up. After an error that cannot be retried the client would drop the acks that it has not
// sent yet.
func (o *openStream) RecvMsg(m any) error {
	err := o.ClientStream.RecvMsg(m)
	if err == nil {
		o.served.Store(true)
		return nil
	}
	if o.consumerEnds() {
		o.cancel(err)
		<-o.client.Done()
		return status.FromContextError(o.client.Err()).Err()
	}
	if errors.Is(context.Cause(o.ctx), errNotEnded) {
		err = status.Error(codes.Unavailable, errNotEnded.Error())
	}
	if of := o.consumers(); of != nil {
		of.failed(err)
	}
	o.cancel(err)
	return err
}

func (o *openStream) consumerEnds() bool {
	of := o.consumers()
	return of != nil && of.ends()
}

func (o *openStream) consumers() *openStreams {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of
}
