package peers

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"

	"example.com/lockstep/pkg/eventing"
)

// broker is a Pub/Sub that only accepts messages. It answers each request after the duration delay.
type broker struct {
	pubsubpb.UnimplementedPublisherServer

	addr   string
	delay  time.Duration
	server *grpc.Server

	mu    sync.Mutex
	last  map[string]int64           // the latest version, by aggregate
	got   map[eventVersion]time.Time // when the event was answered; zero: not yet
	state brokerCounts
	goal  int
	full  chan struct{} // closed when goal events are answered
	stop  int           // number of answered events after which the broker answers no more; 0: no limit
	still chan struct{} // closed when the broker stops to answer
}

type eventVersion struct {
	key     string
	version int64
}

// brokerCounts has the counts of a broker.
type brokerCounts struct {
	answered int
	late     int       // events that arrived after a later event of their aggregate
	twice    int       // arrivals of events that had arrived before
	last     time.Time // the last answer
}

func (c brokerCounts) String() string {
	return fmt.Sprintf("%d out of order, %d twice", c.late, c.twice)
}

func startBroker(ctx context.Context, delay time.Duration) (*broker, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &broker{addr: l.Addr().String(), delay: delay, server: grpc.NewServer()}
	b.expect(0)
	pubsubpb.RegisterPublisherServer(b.server, b)
	go func() { _ = b.server.Serve(l) }() // it ends with Stop
	return b, nil
}

// expect forgets everything, and sets the number of events that await waits for.
func (b *broker) expect(events int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last, b.got, b.state = map[string]int64{}, map[eventVersion]time.Time{}, brokerCounts{}
	b.goal, b.full = events, make(chan struct{})
}

// await waits until all expected events are answered, or until limit is over.
func (b *broker) await(ctx context.Context, limit time.Duration) (brokerCounts, error) {
	b.mu.Lock()
	full := b.full
	b.mu.Unlock()
	select {
	case <-full:
	case <-time.After(limit):
	case <-ctx.Done():
		return brokerCounts{}, ctx.Err()
	}
	return b.counts(), nil
}

func (b *broker) counts() brokerCounts {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// answered returns the time at which the broker answered for an event. It returns the zero time if
// the broker has not answered.
func (b *broker) answered(key string, version int64) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.got[eventVersion{key, version}]
}

// Publish implements the Publisher service.
func (b *broker) Publish(ctx context.Context, r *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error) {
	events := make([]eventVersion, len(r.GetMessages()))
	for i, m := range r.GetMessages() {
		version, err := strconv.ParseInt(m.GetAttributes()[eventing.AttrVersion], 10, 64)
		if err != nil {
			return nil, err
		}
		events[i] = eventVersion{m.GetOrderingKey(), version}
	}
	b.arrive(events)
	if b.delay > 0 {
		select {
		case <-time.After(b.delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if !b.answer(events) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &pubsubpb.PublishResponse{MessageIds: make([]string, len(events))}, nil
}

func (b *broker) arrive(events []eventVersion) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range events {
		if _, known := b.got[e]; known {
			b.state.twice++
			continue
		}
		b.got[e] = time.Time{}
		if e.version < b.last[e.key] {
			b.state.late++
		}
		b.last[e.key] = max(b.last[e.key], e.version)
	}
}

// answerUntil makes the broker answer for the given number of events and then for none, until resume
// is called. It returns a channel that is closed when the broker stops to answer.
func (b *broker) answerUntil(events int) (still <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop, b.still = events, make(chan struct{})
	return b.still
}

// resume makes the broker answer again.
func (b *broker) resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop = 0
}

// answer notes the answer for the events. It returns false if the broker does not answer now.
func (b *broker) answer(events []eventVersion) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop > 0 && b.state.answered >= b.stop {
		return false
	}
	now := time.Now()
	for _, e := range events {
		if !b.got[e].IsZero() {
			continue
		}
		b.got[e] = now
		b.state.answered++
		b.state.last = now
		if b.state.answered == b.goal {
			close(b.full)
		}
		if b.state.answered == b.stop {
			close(b.still)
		}
	}
	return true
}
