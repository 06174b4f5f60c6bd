// Package serve is the edge of a service: REST and gRPC on one port without TLS (h2c),
// as Cloud Run sends requests.
//
// The contract is the same on both transports. Every error is a problem. A request gets 30 seconds,
// or less if the client asks for less. The client gets 5 more seconds to read the answer. The size
// of a body is limited: 256 KiB over REST, one message of 64 KiB over gRPC. Compressed bodies are
// refused. The number of elements in a body is limited to 100 before they are decoded. A panic
// fails its own request only and is logged with its stack. If the bytes of a request cannot be
// decoded, the fault is the client's. The answer is then INVALID_ARGUMENT and names "request" or
// "body". A stream of gRPC's own services (health, reflection) gets 55 seconds, and a unary call to
// them 5 seconds. At most 8 such streams and 8 such calls are under way at once: a further one takes
// the place of the oldest, which gets RESOURCE_EXHAUSTED. While clients do not read these answers, up to 8
// more streams and 8 more calls have not ended yet, and 64 of each that were broken off. Each user has a
// rate (see [Options]). At most 2,000 connections are without a request: a further one takes the place of a silent one
// or, if there is none, of the one that was used the longest time ago. Over HTTP/1 the answer waits
// at most a second for the rest of a body that the handler has not read, and the connection ends.
//
// A request reaches its handler only through its [Guard], which is the same on both transports.
// Without a valid identity the answer is 401 (UNAUTHENTICATED). If the rule of the operation
// does not admit the caller, the answer is 403 (PERMISSION_DENIED). A service with an operation
// that has no rule does not start.
//
// Each request is one log line with its route. The line has at most 200 bytes of the user agent,
// and no other text of the client. A line costs money, but some requests cost the client nothing:
// requests that fail by the client's fault, that outlive the client's deadline, that the guard
// refuses for any reason, or that everybody may send. Of the lines about these requests, 10 a second
// are at INFO. The rest is at DEBUG. Of the REST requests that the guard refuses or that everybody may
// send, 10 a second have a span.
//
// Draining fits into the 10 seconds between SIGTERM and the kill:
//
//   - Readiness and gRPC health go off.
//   - For 2 s everything is still served. Each answer over HTTP/1 tells the client to open its next connection
//     elsewhere (Connection: close). A connection of HTTP/2 gets a GOAWAY that drops no stream.
//   - The connections in the queue of the listener are accepted, and the listener closes. Accepted
//     connections get 1 s to send their first request. A connection of HTTP/2 that was opened during the drain gets its GOAWAY
//     now, and 1 s for the requests that are on their way. Requests in flight get 3.5 s to end.
//   - The remaining requests are cut off and named in the error of Run.
//
// Then the loops of the process end, and the process. Each part has a limit, which it needs only if something
// hangs, so that the process usually ends in a part of this time:
//
//	part                                        limit    until
//	serving on (Server.Linger)                  2 s      2 s
//	requests in flight (shutdownTimeout)        3.5 s    5.5 s
//	relay (drainTime, settleTime of outbox),    3.6 s    9.1 s
//	or consumer (leaveTime, hookTime of inbox)  3.6 s    9.1 s
//	pools (closePools of connect)               0.2 s    9.3 s
//	last telemetry (flushTimeout of command)    0.5 s    9.8 s
//
// So leases and messages are handed back, and the last telemetry is sent, before a kill. The fifth of a second that is left is
// for the work between the parts. An output of the log that stops to take lines in this time holds one of them up for a second
// (package telemetry). If all parts need their limits as well, the kill comes before the last telemetry is sent.
//
// After these 2 s, a connection of HTTP/1 that was idle may end while a client sends a request on it. This is
// always possible over HTTP/1. The client then sends the request again. A proxy sends a PATCH or POST again only if
// it is configured to, and otherwise answers 502. The service has not begun the request.
//
// Health, readiness and metrics are on the same port, or on a port of their own (field Admin of
// [Health]). That port answers until the drain has ended.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"golang.org/x/sync/errgroup"
)

const (
	// defaultLinger is the default of Server.Linger. It covers the time that a load balancer needs to
	// notice the drain.
	defaultLinger = 2 * time.Second
	// shutdownTimeout bounds the stop of the server. It is longer than the waits of a request: a fetch from an owner that
	// does not answer ends after 3 s (FetchTimeout of consistency), and a write waits 2 s for its row, also on a connection
	// that sends its first request after 1 s. Only such a fetch on such a connection would end after 4 s, and is cut off.
	shutdownTimeout = 3500 * time.Millisecond

	// requestTimeout bounds a request. It is also Cloud Run's usual ceiling for an interactive API.
	// The longest wait for a consistency token is far shorter.
	requestTimeout = 30 * time.Second
	// writeGrace is added to the time limit of a request, and the sum bounds the answer. If a
	// request used all its time, its problem document reaches the client during writeGrace.
	writeGrace = 5 * time.Second

	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	// idleTimeout is the time after which the server closes an idle connection. It is above the 600 s
	// after which Google's front ends close one. Otherwise a front end could reuse a connection that the
	// server is closing.
	idleTimeout = 620 * time.Second
	// maxHeaderBytes bounds the headers of a request. There is room for an identity token of 8 KiB and
	// consistency tokens of 4 KiB, with the headers of browsers and proxies.
	maxHeaderBytes = 32 << 10
	// maxBodyBytes bounds a REST body. A video of 10,500 characters, each escaped as a surrogate pair, has
	// 126 KB. Four texts of 4,000 have 192 KB: `make aggregate` takes at most four (see maxMessageBytes).
	maxBodyBytes = 256 << 10
	// maxMessageBytes bounds a gRPC message. In characters of four bytes, a video of 10,500
	// characters has 43 KB, and an aggregate of four texts of 4,000 characters has 64,000 bytes.
	maxMessageBytes = 64 << 10
	// frameHeaderBytes is the length of the header before each gRPC message.
	frameHeaderBytes = 5
	// maxStreams bounds the streams of one HTTP/2 connection. It is the number of net/http, too. A client
	// with more requests at once opens more connections. Each stream has a goroutine and up to
	// maxHeaderBytes before the request can be refused.
	maxStreams = 250
	// maxFrameBytes bounds a frame of HTTP/2. It is the smallest bound that RFC 9113 allows. A connection keeps a buffer for its
	// largest frame, of any type, for as long as it is open. With the 1 MiB of net/http, 500 connections of a stranger
	// would take all memory of an instance.
	maxFrameBytes = 16 << 10
)

// Server serves one port. Run it once.
type Server struct {
	log      *slog.Logger
	rest     *chi.Mux
	grpc     *GRPC
	health   *Health
	inFlight inFlight

	// Linger is how long a draining server goes on accepting connections. Zero means 2 s.
	Linger time.Duration
}

// New puts the two transports behind one port. All parameters are required.
func New(log *slog.Logger, rest *chi.Mux, grpc *GRPC, health *Health) *Server {
	return &Server{log: log, rest: rest, grpc: grpc, health: health}
}

// Run serves on lis, and closes lis. At the same time it runs the loops. When ctx is cancelled, Run
// drains. Only then it cancels the loops' context, because the last requests leave work for the
// loops. Run returns nil if every accepted request was answered and every loop returned nil.
// Otherwise it returns the error of a loop, or an error that names the requests that were cut off.
// If a loop fails or a port cannot be served, everything ends. If an operation has no rule of
// access, Run starts nothing.
func (s *Server) Run(ctx context.Context, lis net.Listener, loops ...func(context.Context) error) error {
	if err := s.checkRules(); err != nil {
		return errors.Join(err, lis.Close())
	}
	looping, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoops()
	g, failed := errgroup.WithContext(looping)
	if s.health.Admin != nil {
		admin := s.adminServer()
		defer func() { _ = admin.Close() }() // this may cut off a probe, but the process ends anyway
		g.Go(func() error { return serveAdmin(looping, admin, s.health.Admin) })
	}
	for _, loop := range loops {
		g.Go(func() error { return loop(failed) })
	}
	g.Go(func() error {
		defer stopLoops()
		serving, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(failed, stop)()
		return s.serve(serving, lis)
	})
	return g.Wait()
}

func (s *Server) serve(ctx context.Context, lis net.Listener) error {
	ending, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	server, conns := s.httpServer(s.handler(ending))
	defer func() { _ = server.Close() }()
	served, accepted := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(accepted)
		served <- server.Serve(framingListener{lis})
	}()

	if err := waitOr(ctx.Done(), served); err != nil {
		return fmt.Errorf("serve on %s: %w", lis.Addr(), err)
	}
	s.health.drain()
	s.grpc.drain()
	conns.leave()
	lingered, stop := context.WithTimeout(ending, cmp.Or(s.Linger, defaultLinger))
	defer stop()
	if err := waitOr(lingered.Done(), served); err != nil {
		return fmt.Errorf("serve on %s while draining: %w", lis.Addr(), err)
	}
	end()
	queued, err := closeListener(lis, accepted)
	if err != nil {
		return fmt.Errorf("stop listening on %s: %w", lis.Addr(), err)
	}
	_ = server.Serve(framingListener{queued}) // its error says that there are no more
	conns.leave()
	return s.shutdown(server, conns)
}

func (s *Server) httpServer(handler http.Handler) (*http.Server, *connections) {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler:           boundRest(handler),
		Protocols:         &protocols,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrameBytes},
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	conns := newConnections()
	conns.of(server)
	return server, conns
}

// handler passes each request to gRPC or REST by its content type. ending is cancelled when
// lingering is over. The end of ending also ends the streams of gRPC's own services. They carry no
// work that could be lost, and would otherwise stay open for up to a minute.
func (s *Server) handler(ending context.Context) http.Handler {
	grpc := s.grpc.handler(ending)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.inFlight.enter(r)()
		s.announceDrain(w, r)
		if isGRPC(r) {
			r.Header.Set("Content-Type", strings.ToLower(r.Header.Get("Content-Type"))) // grpc-go takes lower case only
			grpc.ServeHTTP(w, r)
			return
		}
		s.rest.ServeHTTP(w, r)
	})
}

// boundAnswer ends an answer that takes longer than limit, for example because the client does not
// read it. It ignores the error of a writer without a connection, such as a test's recorder, which
// has nothing to bound.
func boundAnswer(w http.ResponseWriter, limit time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit))
}

// isGRPC accepts a POST over HTTP/2 with the type application/grpc and any suffix (such as +proto),
// as gRPC sends it. The gRPC server does not support other requests with such a type
// (application/grpc-web, HTTP/1.1, another method). These requests are left to REST, which refuses
// and logs them.
func isGRPC(r *http.Request) bool {
	rest, ok := strings.CutPrefix(strings.ToLower(r.Header.Get("Content-Type")), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';') && r.ProtoMajor == 2 && r.Method == http.MethodPost
}
