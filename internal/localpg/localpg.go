// Package localpg runs a private, throw-away Postgres server for a laptop or a
// test, and derives the URLs with which the services' roles connect to one.
//
// The programs are the machine's own where it has them, else they are downloaded
// once. The server lives in a temporary directory, listens on a free port of
// 127.0.0.1 and trusts whoever connects there: data that matters does not belong
// in it. Postgres refuses to run as root, so a root process runs it as an
// unprivileged user. The server ends with this process, on Linux also when that
// is killed.
package localpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"example.com/lockstep/internal/child"
)

const (
	// startTime bounds Start after any download: 0.7 s on an idle machine, far
	// more on one that compiles on every core.
	startTime = time.Minute
	// stopTime bounds Close: a fast shutdown rolls back what is open, and writes
	// one checkpoint.
	stopTime = 10 * time.Second
)

// Options has a safe zero value: silent and fast.
type Options struct {
	// Log is told before a download, which takes a while. Nil: nobody is.
	Log io.Writer
	// Sync makes commits reach the disk, as in production. Without it the
	// server is several times faster, and an operating system crash ruins it.
	Sync bool
	// Port is where the server listens; 0 is a free port. One below those that the
	// system hands out by itself is there for the next server, too.
	Port int
}

// Server is a running Postgres.
type Server struct {
	bin     string
	dir     *directory
	opts    Options
	url     string
	version string
	process *child.Process
}

// Start returns once the server accepts connections. Its error says in one line
// what to install when no Postgres can be had. Whoever starts a server closes it.
func Start(ctx context.Context, opts Options) (*Server, error) {
	if opts.Log == nil {
		opts.Log = io.Discard
	}
	bin, err := findBinaries(ctx, opts.Log)
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	dir, err := newDirectory()
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	s := &Server{bin: bin, dir: dir, opts: opts}
	if err := s.initialiseAndLaunch(ctx); err != nil {
		return nil, fmt.Errorf("start postgres: %w", errors.Join(err, s.Close()))
	}
	return s, nil
}

// URL connects as the superuser postgres to the database postgres.
func (s *Server) URL() string { return s.url }

// Version is the server's version, such as 17.5.
func (s *Server) Version() string { return s.version }

// Description says in a few words what runs and where it came from.
func (s *Server) Description() string {
	return fmt.Sprintf("Postgres %s from %s, private and temporary", s.version, s.bin)
}

// Done is closed when the server has ended, for whatever reason.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

// Close stops the server and removes its data. Sessions still open are ended.
// Closing a closed server does nothing.
func (s *Server) Close() error {
	var err error
	if s.process != nil {
		err = s.process.Stop(syscall.SIGINT, stopTime) // SIGINT asks Postgres for a fast shutdown
	}
	return errors.Join(err, s.dir.remove())
}
