package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Streams asks the broker, for each stream that is opened or opened again, for
// no more messages than its consumer has room for. The client asks for as much
// with every stream, so that after some breaks of the connection there is more
// under way than fits. What the client cannot read lies in the connection, where
// nobody extends its lease: the broker delivers it again and again, and counts.
//
// Streams belong to a connection: [Streams.DialOption] goes into the client and
// [Options] into its consumers, at most one for each subscription.
type Streams struct {
	mu      sync.Mutex
	budgets map[string]*budget
}

// NewStreams returns the streams of a connection that is not there yet.
func NewStreams() *Streams { return &Streams{budgets: map[string]*budget{}} }

// DialOption is for the client's connection.
func (s *Streams) DialOption() grpc.DialOption { return grpc.WithChainStreamInterceptor(s.intercept) }

// enter has the streams of a subscription bounded by b until leave is called. A
// nil s has none.
func (s *Streams) enter(subscription string, b *budget) (leave func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.budgets[subscription] != nil {
		return nil, fmt.Errorf("two consumers of %s on one connection", subscription)
	}
	s.budgets[subscription] = b
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.budgets, subscription)
	}, nil
}

func (s *Streams) budget(subscription string) *budget {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.budgets[subscription]
}

func (s *Streams) intercept(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if !strings.HasSuffix(method, "/StreamingPull") {
		return open(ctx, desc, conn, method, opts...)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stream, err := open(ctx, desc, conn, method, opts...)
	if err != nil {
		cancel(err)
		return nil, err
	}
	return &pull{ClientStream: stream, streams: s, ctx: ctx, cancel: cancel}, nil
}

// pull is one StreamingPull.
type pull struct {
	grpc.ClientStream

	streams *Streams
	// ctx is the stream's own, which more room ends.
	ctx    context.Context //nolint:containedctx // it ends with the stream that it belongs to
	cancel context.CancelCauseFunc
}

var errMoreRoom = errors.New("there is more room than the stream was opened for")

// SendMsg bounds the stream with its first request. Where there is no room at all
// the stream is for one message, which then waits in its callback: one that is
// not opened would have the client's keep-alives queue up.
func (p *pull) SendMsg(m any) error {
	request, ok := m.(*pubsubpb.StreamingPullRequest)
	if !ok || request.GetSubscription() == "" {
		return p.ClientStream.SendMsg(m)
	}
	b := p.streams.budget(request.GetSubscription())
	if b == nil {
		return p.ClientStream.SendMsg(m)
	}
	room := b.room()
	request.MaxOutstandingMessages = min(request.GetMaxOutstandingMessages(), max(1, room.messages))
	request.MaxOutstandingBytes = min(request.GetMaxOutstandingBytes(), onTheWire(room.bytes))
	if most := b.limit.part(3, 4); !room.covers(most) {
		go p.widen(b, room, most)
	}
	return p.ClientStream.SendMsg(request)
}

// widen ends the stream when there is room for twice as much as it was opened
// for, and for a part of the budget that is worth it. The client then opens
// another.
func (p *pull) widen(b *budget, room, most load) {
	least, twice := b.limit.part(1, 16), room.plus(room)
	enough := load{
		min(max(twice.messages, least.messages), most.messages), min(max(twice.bytes, least.bytes), most.bytes),
	}
	if err := b.wait(p.ctx, enough); err == nil {
		p.cancel(errMoreRoom)
	}
}

// RecvMsg has an end for more room look like one of the network's, which the
// client mends by itself.
func (p *pull) RecvMsg(m any) error {
	err := p.ClientStream.RecvMsg(m)
	if err == nil {
		return nil
	}
	if errors.Is(context.Cause(p.ctx), errMoreRoom) {
		err = status.Error(codes.Unavailable, errMoreRoom.Error())
	}
	p.cancel(err)
	return err
}
