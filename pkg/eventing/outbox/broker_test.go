package outbox

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/history"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
)

// chaos is a broker that records the messages in the order in which it takes them. It
// fails, is slow, takes messages after it has reported an error, also later, and can be
// restarted.
type chaos struct {
	pubsubpb.UnimplementedPublisherServer
	record func(...history.Record)
	addr   string
	server *grpc.Server
	served chan struct{} // closed when the server has let go of its port
	late   sync.WaitGroup
	hang   atomic.Bool // never answers

	mu   sync.Mutex
	dice *rand.Rand
}

func newChaos(t *testing.T, log *history.Log) *chaos {
	t.Helper()
	c := &chaos{dice: rand.New(rand.NewPCG(4, 5)), record: func(records ...history.Record) {
		if err := log.Add(records...); err != nil {
			t.Error(err)
		}
	}}
	c.start(t, listen(t))
	t.Cleanup(func() { c.server.Stop(); c.late.Wait() }) // late messages still need the log
	return c
}

// listen takes a port to which the broker can come back.
func listen(t *testing.T) net.Listener {
	t.Helper()
	lis, err := net.Listen("tcp", porttest.Addr(t))
	if err != nil {
		t.Fatal(err)
	}
	return lis
}

func (c *chaos) start(t *testing.T, lis net.Listener) {
	t.Helper()
	c.addr = lis.Addr().String()
	c.server = grpc.NewServer(grpc.MaxRecvMsgSize(11<<20), grpc.WaitForHandlers(true))
	pubsubpb.RegisterPublisherServer(c.server, c)
	served := make(chan struct{})
	c.served = served
	go func() {
		defer close(served)
		_ = c.server.Serve(lis)
	}()
}

// restart ends all requests in flight.
func (c *chaos) restart(t *testing.T) {
	t.Helper()
	c.server.Stop()
	// A server that is stopped before it serves closes its listener only then.
	<-c.served
	lis, err := net.Listen("tcp", c.addr)
	if err != nil {
		t.Fatal(err)
	}
	c.start(t, lis)
}

func (c *chaos) Publish(ctx context.Context, req *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error) {
	if c.hang.Load() {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	c.mu.Lock()
	fate, delay := c.dice.IntN(100), time.Duration(c.dice.IntN(300))*time.Millisecond
	c.mu.Unlock()
	switch {
	case fate == 0:
		return nil, status.Error(codes.Unavailable, "not taken")
	case fate == 1:
		c.take(req)
		return nil, status.Error(codes.DeadlineExceeded, "taken, and the answer lost")
	case fate == 2:
		c.late.Go(func() {
			backoff.Sleep(context.WithoutCancel(ctx), delay, nil)
			c.take(req)
		})
		return nil, status.Error(codes.DeadlineExceeded, "taken later")
	case fate == 3 && len(req.Messages) > 1:
		return nil, status.Error(codes.InvalidArgument, "one of them, or not")
	case fate < 10:
		backoff.Sleep(ctx, delay/10, nil)
	}
	c.take(req)
	return &pubsubpb.PublishResponse{MessageIds: make([]string, len(req.Messages))}, nil
}

func (c *chaos) take(req *pubsubpb.PublishRequest) {
	c.record(messages(history.Publish, "broker", "", req)...)
}

// messages records those of a request.
func messages(kind history.Kind, process, request string, req *pubsubpb.PublishRequest) []history.Record {
	records := make([]history.Record, len(req.Messages))
	for i, m := range req.Messages {
		// A text that is no number parses to 0, which is no event's version.
		version, _ := strconv.ParseInt(m.Attributes[eventing.AttrVersion], 10, 64)
		epoch, _ := strconv.ParseInt(m.Attributes[eventing.AttrEpoch], 10, 64)
		records[i] = history.Record{
			Kind: kind, At: time.Now(), Process: process, Request: request,
			Aggregate: m.OrderingKey, Epoch: epoch, Version: version, Event: m.Attributes[eventing.AttrEventID],
		}
	}
	return records
}
