// Package localbroker starts a local Pub/Sub and creates what the pair needs in
// one: the topics and subscriptions of [Topology].
//
// There are two kinds. The official emulator is a Java program of the Google
// Cloud CLI. The fake is the Go client's own test server, inside this process,
// good enough for a walk-through: it holds back all but one message per key,
// keeps none longer than ten minutes undelivered, and never frees memory. Both
// forget everything when they end.
package localbroker

import (
	"context"
	"fmt"
	"net"
)

// Kind is a kind of local Pub/Sub.
type Kind string

// The kinds. Auto is the emulator where it is installed, else the fake.
const (
	Auto     Kind = ""
	Official Kind = "emulator"
	Fake     Kind = "fake"
)

// Options has a safe zero value.
type Options struct {
	Kind Kind
	// Addr is the host:port to listen on. Empty: a free port of 127.0.0.1.
	Addr string
}

// Server is a running local Pub/Sub.
type Server struct {
	addr        string
	description string
	done        <-chan struct{}
	stop        func() error
}

// Start returns once the server answers. A taken port is an error that names it,
// a missing emulator one that says what to install. Whoever starts a server
// closes it.
func Start(ctx context.Context, opts Options) (*Server, error) {
	l, err := listen(ctx, opts.Addr)
	if err != nil {
		return nil, fmt.Errorf("start local Pub/Sub: %w", err)
	}
	s, err := startOn(ctx, l, opts.Kind)
	if err != nil {
		return nil, fmt.Errorf("start local Pub/Sub on %s: %w", l.Addr(), err)
	}
	return s, nil
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", addr)
}

// startOn takes over the listener.
func startOn(ctx context.Context, l net.Listener, kind Kind) (*Server, error) {
	if kind == Fake {
		return startFake(l), nil
	}
	java, jar, err := findEmulator()
	if err != nil && kind == Auto {
		return startFake(l), nil
	}
	// The emulator binds the port itself.
	if closeErr := l.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, err
	}
	return startEmulator(ctx, l.Addr().(*net.TCPAddr), java, jar)
}

// Addr is the host:port that the server listens on: a value for
// PUBSUB_EMULATOR_HOST.
func (s *Server) Addr() string { return s.addr }

// Description says in a few words what runs.
func (s *Server) Description() string { return s.description }

// Done is closed when the server has ended, for whatever reason.
func (s *Server) Done() <-chan struct{} { return s.done }

// Close stops the server. Closing a closed server does nothing.
func (s *Server) Close() error { return s.stop() }
