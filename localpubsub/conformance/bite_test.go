package conformance

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/localpubsub"
)

// A mutant is a server with one fault: localpubsub with changed messages on the
// wire.
type mutant struct {
	// call makes a unary call, or does something else instead.
	call func(request, reply any, call func() error) error
	// send and receive change the messages of a stream.
	send    func(*pubsubpb.StreamingPullRequest)
	receive func(*pubsubpb.StreamingPullResponse)
	// fails are the behaviours that must fail.
	fails []string
}

// Each behaviour fails on a faulty server: the emulator or pstest, by their lists
// of departures (cmd/conformance checks the lists), or a mutant. A departure
// because of an unimplemented method does not count.
func TestEachBehaviourFailsSomewhere(t *testing.T) {
	t.Parallel()
	failed := make(map[string]bool)
	for _, departures := range []map[string]Departure{Emulator(), Pstest()} {
		for name, d := range departures {
			if !d.Sometimes && !d.Harmful && !strings.Contains(d.Why, "UNIMPLEMENTED") {
				failed[name] = true
			}
		}
	}
	for _, m := range mutants() {
		for _, name := range m.fails {
			failed[name] = true
		}
	}
	for _, name := range hasty() {
		failed[name] = true
	}
	for _, b := range Behaviours() {
		if !failed[b.Name] {
			t.Errorf("nothing shows that this can fail: %s", b.Name)
		}
		delete(failed, b.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		t.Errorf("no behaviour: %s", name)
	}
}

func TestMutantsAreNoticed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it waits in vain for much")
	}
	server := startServer(t, localpubsub.Options{})
	var wg sync.WaitGroup
	for name, m := range mutants() {
		wg.Go(func() { mustFail(t, m.connect(t, name, server.Addr()), m.fails) })
	}
	wg.Wait()
}

// A server with a clock that runs fast ends leases early.
func TestEarlyEndOfLeasesIsNoticed(t *testing.T) {
	t.Parallel()
	clock := localpubsub.NewClock()
	server := startServer(t, localpubsub.Options{Clock: clock})
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			case <-time.After(50 * time.Millisecond):
				clock.Advance(500 * time.Millisecond)
			}
		}
	}()
	defer func() { close(done); <-stopped }()
	mustFail(t, mutant{}.connect(t, "hasty", server.Addr()), hasty())
}

func startServer(t *testing.T, opts localpubsub.Options) *localpubsub.Server {
	t.Helper()
	server, err := localpubsub.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return server
}

func mustFail(t *testing.T, s *Subject, names []string) {
	t.Helper()
	var chosen []Behaviour
	for _, b := range Behaviours() {
		if slices.Contains(names, b.Name) {
			chosen = append(chosen, b)
		}
	}
	for _, outcome := range Run(t.Context(), s, chosen) {
		t.Logf("%s: %v after %v", s.Name, outcome.Err, outcome.Took)
		if outcome.Err == nil {
			t.Errorf("%s: not noticed by: %s", s.Name, outcome.Behaviour.Name)
		}
	}
}

// connect connects to the server at addr through the mutant.
func (m mutant) connect(t *testing.T, name, addr string) *Subject {
	t.Helper()
	mu := new(sync.Mutex)
	unary := func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		request = proto.Clone(request.(proto.Message)) // the trial compares the answer with its request
		call := func() error { return invoke(ctx, method, request, reply, conn, opts...) }
		if m.call == nil {
			return call()
		}
		return m.call(request, reply, call)
	}
	stream := func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := open(ctx, desc, conn, method, opts...)
		return mutated{s, m, mu}, err
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)),
		grpc.WithUnaryInterceptor(unary), grpc.WithStreamInterceptor(stream))
	if err != nil {
		t.Error(err)
		return nil
	}
	s, err := connect(t.Context(), conn, &Subject{Name: name})
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() { s.Close() })
	return s
}

type mutated struct {
	grpc.ClientStream
	mutant

	mu *sync.Mutex // held by receive
}

func (m mutated) SendMsg(message any) error {
	if m.send != nil {
		m.send(message.(*pubsubpb.StreamingPullRequest))
	}
	return m.ClientStream.SendMsg(message)
}

func (m mutated) RecvMsg(message any) error {
	err := m.ClientStream.RecvMsg(message)
	if m.receive != nil && err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.receive(message.(*pubsubpb.StreamingPullResponse))
	}
	return err
}
