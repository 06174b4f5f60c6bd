// Package localbroker starts a Pub/Sub on this machine and creates the
// resources of the pair in one: the topics and subscriptions of [Topology],
// with the topics' schemas.
//
// There are three. The repository's own, pkg/localpubsub, runs in this process
// and is the default. The official emulator is a Java program of the Google
// Cloud CLI, for a second opinion. The fake is the Go client's own test server,
// for comparison. All lose their state when they end, unless the first has a
// file.
package localbroker

import (
	"context"
	"fmt"
	"net"
	"sync"

	"example.com/lockstep/pkg/localpubsub"
)

// Kind is a kind of local Pub/Sub.
type Kind string

// The kinds.
const (
	Local    Kind = "" // the repository's own
	Official Kind = "emulator"
	Fake     Kind = "fake"
)

// Options selects and configures a Pub/Sub. Its zero value is usable.
type Options struct {
	Kind Kind
	// Addr is the host:port to listen on. Empty: a free port of 127.0.0.1.
	Addr string
	// File is the file in which a [Local] one keeps its state over a restart.
	// Empty: none.
	File string
}

// Server is a running local Pub/Sub.
type Server struct {
	addr        string
	description string
	done        <-chan struct{}
	stop        func() error
}

// Start returns once the server answers. A taken port is an error that names
// the port, a damaged or used file one that names the file, and a missing
// emulator one that names the packages to install. The caller closes the
// server.
func Start(ctx context.Context, opts Options) (*Server, error) {
	if opts.Addr == "" {
		opts.Addr = "127.0.0.1:0"
	}
	if opts.File != "" && opts.Kind != Local {
		return nil, fmt.Errorf("start Pub/Sub: file %s: only the repository's own keeps one", opts.File)
	}
	start := func(_ context.Context, addr string) (*Server, error) { return startLocal(addr, opts.File) }
	switch opts.Kind {
	case Official:
		start = startEmulator
	case Fake:
		start = startFake
	case Local:
	}
	s, err := start(ctx, opts.Addr)
	if err != nil {
		return nil, fmt.Errorf("start Pub/Sub on %s: %w", opts.Addr, err)
	}
	return s, nil
}

func startLocal(addr, file string) (*Server, error) {
	local, err := localpubsub.Start(localpubsub.Options{Addr: addr, File: file})
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	stop := sync.OnceValue(func() error {
		defer close(done)
		return local.Close()
	})
	description := "the repository's own Pub/Sub"
	if file != "" {
		description += " (kept in " + file + ")"
	}
	return &Server{addr: local.Addr(), description: description, done: done, stop: stop}, nil
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", addr)
}

// Addr is the host:port that the server listens on; use it as
// PUBSUB_EMULATOR_HOST.
func (s *Server) Addr() string { return s.addr }

// Description names the running server in a few words.
func (s *Server) Description() string { return s.description }

// Done is closed when the server has ended, for any reason.
func (s *Server) Done() <-chan struct{} { return s.done }

// Close stops the server. Closing a closed server does nothing.
func (s *Server) Close() error { return s.stop() }
