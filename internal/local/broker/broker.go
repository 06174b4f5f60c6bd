// Package broker starts a Pub/Sub on this machine. It also creates the resources of the pair in a
// Pub/Sub. The resources are the topics and subscriptions of [Topology], and the schemas of the
// topics.
//
// There are two kinds of Pub/Sub. The default is localpubsub, which belongs to this repository and
// runs in this process. The other kind is the official emulator, a Java program of the Google Cloud
// CLI. It serves to check a result against a second implementation. Both lose their state when they
// end.
package broker

import (
	"context"
	"fmt"
	"sync"

	"example.com/lockstep/localpubsub"
	"example.com/lockstep/localpubsub/peer"
)

// Kind is a kind of local Pub/Sub.
type Kind string

// The kinds.
const (
	Local    Kind = "" // the repository's own
	Official Kind = "emulator"
)

// Options selects and configures a Pub/Sub. Its zero value is usable.
type Options struct {
	Kind Kind
	// Addr is the host:port to listen on. If it is empty, the server listens on a free port of
	// 127.0.0.1.
	Addr string
}

// Server is a running local Pub/Sub.
type Server struct {
	addr        string
	description string
	done        <-chan struct{}
	stop        func() error
}

// Start returns when the server answers. If the port is taken, the error names the port. If the
// emulator is missing, the error names the packages to install ([peer.ErrNotInstalled]). The caller
// closes the server.
func Start(ctx context.Context, opts Options) (*Server, error) {
	if opts.Addr == "" {
		opts.Addr = "127.0.0.1:0"
	}
	var s *Server
	var err error
	if opts.Kind == Official {
		s, err = startOfficial(ctx, opts.Addr)
	} else {
		s, err = startLocal(opts.Addr)
	}
	if err != nil {
		return nil, fmt.Errorf("start Pub/Sub on %s: %w", opts.Addr, err)
	}
	return s, nil
}

func startOfficial(ctx context.Context, addr string) (*Server, error) {
	official, err := peer.StartEmulator(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &Server{addr: official.Addr(), description: official.Description(), done: official.Done(), stop: official.Close}, nil
}

func startLocal(addr string) (*Server, error) {
	local, err := localpubsub.Start(localpubsub.Options{Addr: addr})
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	stop := sync.OnceValue(func() error {
		defer close(done)
		return local.Close()
	})
	return &Server{addr: local.Addr(), description: "the repository's own Pub/Sub", done: done, stop: stop}, nil
}

// Addr returns the host:port that the server listens on. It is a value for PUBSUB_EMULATOR_HOST.
func (s *Server) Addr() string { return s.addr }

// Description names the running server in a few words.
func (s *Server) Description() string { return s.description }

// Done is closed when the server has ended, for any reason.
func (s *Server) Done() <-chan struct{} { return s.done }

// Close stops the server. Closing a closed server does nothing.
func (s *Server) Close() error { return s.stop() }
