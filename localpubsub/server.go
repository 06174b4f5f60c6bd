package localpubsub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // publishers may compress their calls
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"example.com/lockstep/localpubsub/internal/iam"
	"example.com/lockstep/localpubsub/internal/protocolmux"
	"example.com/lockstep/localpubsub/internal/resource"
	"example.com/lockstep/localpubsub/internal/schema"
	"example.com/lockstep/localpubsub/internal/transcoding"
)

// Options configures a server. Its zero value is usable.
type Options struct {
	// Addr is the host:port to listen on. If empty, the server takes a free
	// port of 127.0.0.1.
	Addr string
	// Listener is used in place of Addr, and is closed with the server. It may be in memory, such
	// as the listener of bufconn, if it has a method DialContext(context.Context) (net.Conn,
	// error). With such a listener, a test can run in the virtual time of testing/synctest.
	Listener net.Listener
	// Clock is the server's clock. If nil, the server gets a running clock.
	Clock *Clock
	// MaxBytes is the limit for the total size of the kept messages. While the limit is reached,
	// publish requests are refused with RESOURCE_EXHAUSTED. Zero means 1 GiB.
	MaxBytes int64
	// If ReturnOnClose is true, the messages of an ended stream are ready again at once. If it is
	// false, the messages stay leased until their deadline, as in Google's service.
	ReturnOnClose bool
}

const (
	defaultMaxBytes = 1 << 30
	// maxRequest is the maximum size of a request. It is far above maxPublish, so that a publish that is too
	// large is INVALID_ARGUMENT, as in Google's service. gRPC itself would answer RESOURCE_EXHAUSTED, which
	// client libraries repeat until their deadline.
	maxRequest = 64 << 20
	// window is the flow control window of a connection, in bytes. With the default of 64 KiB,
	// every few messages would cost a round trip.
	window = 4 << 20
)

// Server is a running local Pub/Sub.
type Server struct {
	options  Options
	clock    *Clock
	store    store
	schemas  *schema.Service
	policies *iam.Policies
	faults   *faults
	number   atomic.Uint64 // of the last new subscription
	message  atomic.Uint64 // id of the last message

	topics        registry[*topic]
	subscriptions registry[*subscription]
	snapshots     registry[*snapshot]

	// keepAlive ends a connection whose client is gone without a word. Its streams would otherwise get messages
	// for hours, and each such message would wait for the end of its lease, many times in a row.
	keepAlive keepalive.ServerParameters

	mux     *protocolmux.Mux
	grpc    *grpc.Server
	http    *http.Server
	closing chan struct{}
	close   func() error
}

// Start starts a server, which serves until Close. When Start returns, the
// address accepts connections. Start fails if the port is taken.
func Start(options Options) (*Server, error) {
	listener, self, err := open(options)
	if err != nil {
		return nil, fmt.Errorf("start local Pub/Sub: %w", err)
	}
	s := newServer(options)
	s.serve(listener, self)
	return s, nil
}

// open returns the server's listener, and a client connection to the listener.
func open(options Options) (net.Listener, *grpc.ClientConn, error) {
	listener := options.Listener
	if listener == nil {
		addr := options.Addr
		if addr == "" {
			addr = "127.0.0.1:0"
		}
		var err error
		if listener, err = net.Listen("tcp", addr); err != nil {
			return nil, nil, err
		}
	}
	// The address of a listener may have no host. A client that dials such an address reaches this
	// machine, too.
	target, dial := listener.Addr().String(), []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if memory, ok := listener.(interface {
		DialContext(ctx context.Context) (net.Conn, error)
	}); ok {
		target = "passthrough:///" + target
		dial = append(dial, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return memory.DialContext(ctx) }))
	}
	self, err := grpc.NewClient(target, dial...)
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	return listener, self, nil
}

func newServer(options Options) *Server {
	s := &Server{
		options: options, clock: options.Clock, closing: make(chan struct{}),
		keepAlive: keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second},
	}
	if s.clock == nil {
		s.clock = NewClock()
	}
	s.store.limit = options.MaxBytes
	if s.store.limit == 0 {
		s.store.limit = defaultMaxBytes
	}
	// A consumer may remember message ids from before a restart, so the server must not use these
	// ids again.
	s.message.Store(uint64(time.Now().UnixMicro()))
	s.schemas = schema.New(s.clock.Now)
	s.policies = iam.NewPolicies(s.exists)
	s.faults = newFaults(s.closing)
	return s
}

// serve starts the gRPC server and the HTTP server. The HTTP server answers a REST request by a
// gRPC call over self, a connection of the server to itself. So faults and limits apply to REST,
// too.
func (s *Server) serve(listener net.Listener, self *grpc.ClientConn) {
	s.mux = protocolmux.New(listener)
	s.grpc = grpc.NewServer(
		grpc.ForceServerCodecV2(newFrames()),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(window),
		grpc.UnaryInterceptor(s.faults.unary),
		grpc.StreamInterceptor(s.faults.stream),
		grpc.KeepaliveParams(s.keepAlive),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	pubsubpb.RegisterPublisherServer(s.grpc, publisher{Server: s})
	pubsubpb.RegisterSubscriberServer(s.grpc, subscriber{Server: s})
	pubsubpb.RegisterSchemaServiceServer(s.grpc, schemaService{Service: s.schemas, server: s})
	iampb.RegisterIAMPolicyServer(s.grpc, s.policies)
	s.http = &http.Server{
		Handler:           s.control(transcoding.NewHandler(self)),
		ReadHeaderTimeout: protocolmux.SniffTime, ReadTimeout: transcoding.CallTime, WriteTimeout: 2 * transcoding.CallTime,
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.grpc.Serve(s.mux.GRPC()) }) // both servers end with the mux
	serving.Go(func() { _ = s.http.Serve(s.mux.HTTP()) })
	s.close = sync.OnceValue(func() error {
		close(s.closing)
		err := s.mux.Close()
		s.grpc.Stop()
		_ = s.http.Close() // closes only connections, because the listener is closed already
		_ = self.Close()
		serving.Wait()
		s.faults.wait()
		s.forget(unavailable("the server is closing"))
		return err
	})
}

// Addr is the host:port that the server listens on. Use it as
// PUBSUB_EMULATOR_HOST.
func (s *Server) Addr() string { return s.mux.Addr().String() }

// Close ends all calls and streams. Closing a closed server does nothing.
func (s *Server) Close() error { return s.close() }

// Forget deletes all topics, subscriptions, snapshots, schemas, policies and messages, and ends the
// streams. This simulates a broker that has lost its memory.
func (s *Server) Forget() { s.forget(unavailable("the server has lost its memory")) }

func (s *Server) forget(why error) {
	for _, sub := range s.subscriptions.drain() {
		sub.lock()
		sub.end(why)
		sub.unlock()
	}
	for _, snap := range s.snapshots.drain() {
		snap.end()
	}
	for _, t := range s.topics.drain() {
		t.end()
	}
	s.schemas.Forget()
	s.policies.Forget()
}

func (s *Server) now() time.Time      { return s.clock.Now() }
func (s *Server) nextNumber() uint64  { return s.number.Add(1) }
func (s *Server) nextMessage() uint64 { return s.message.Add(1) }

func unavailable(why string) error { return status.Error(codes.Unavailable, why) }

func (s *Server) topic(name string) (*topic, error) {
	if found, there := s.topics.get(name); there {
		return found, nil
	}
	return nil, resource.Unknown(name, "topics", "topic")
}

func (s *Server) subscription(name string) (*subscription, error) {
	if found, there := s.subscriptions.get(name); there {
		return found, nil
	}
	return nil, resource.Unknown(name, "subscriptions", "subscription")
}

func (s *Server) snapshot(name string) (*snapshot, error) {
	if found, there := s.snapshots.get(name); there {
		return found, nil
	}
	return nil, resource.Unknown(name, "snapshots", "snapshot")
}

// exists checks that a resource exists and can have an access policy.
func (s *Server) exists(name string) (err error) {
	switch {
	case strings.Contains(name, "/topics/"):
		_, err = s.topic(name)
	case strings.Contains(name, "/snapshots/"):
		_, err = s.snapshot(name)
	case strings.Contains(name, "/schemas/"):
		_, err = s.schemas.GetSchema(context.Background(), &pubsubpb.GetSchemaRequest{Name: name})
	default:
		_, err = s.subscription(name)
	}
	return err
}
