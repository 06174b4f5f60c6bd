// Package peer starts two other local Pub/Subs, for comparison. The official emulator is a Java
// program of the Google Cloud CLI. pstest is the test server of the Go client. Both lose their
// state when they end.
package peer

import (
	"context"
	"fmt"
	"net"
)

// Server is a running Pub/Sub.
type Server struct {
	addr        string
	description string
	done        <-chan struct{}
	stop        func() error
}

// Addr is the host:port that the server listens on. Use it as
// PUBSUB_EMULATOR_HOST.
func (s *Server) Addr() string { return s.addr }

// Description names the running server in a few words.
func (s *Server) Description() string { return s.description }

// Done is closed when the server has ended, for any reason.
func (s *Server) Done() <-chan struct{} { return s.done }

// Close stops the server. Closing a closed server does nothing.
func (s *Server) Close() error { return s.stop() }

func listen(ctx context.Context, addr string) (net.Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return l, nil
}
