// Package postgres runs a private, temporary Postgres server for a laptop or a
// test, and derives the URLs with which the services' roles connect to one.
//
// It uses the machine's own programs if there are any; else they are downloaded
// once. The server lives in a temporary directory, listens on a free port of
// 127.0.0.1 and trusts every local connection, so it must not hold valuable
// data. Postgres refuses to run as root, so a root process runs it as an
// unprivileged user. The server ends with this process, on Linux also when the
// process is killed.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"example.com/lockstep/internal/local/process"
)

const (
	// startTime bounds Start after any download: 0.7 s on an idle machine, far
	// more on one that compiles on every core.
	startTime = 3 * time.Minute
	// stopTime bounds Close: a fast shutdown rolls back open transactions, and
	// writes one checkpoint.
	stopTime = 10 * time.Second
)

// Options configures a server. Its zero value is silent and fast.
type Options struct {
	// Log gets a line before a download, which takes a while. Nil: no output.
	Log io.Writer
	// Sync makes commits reach the disk, as in production. Without it the
	// server is several times faster, but an operating system crash destroys
	// its data.
	Sync bool
}

// Server is a running Postgres.
type Server struct {
	bin     string
	dir     *directory
	opts    Options
	url     string
	version string // such as 17.5
	process *process.Process
}

// Start returns once the server accepts connections. If no Postgres can be
// obtained, its error wraps [ErrNotInstalled], which names in one line the
// package to install. The caller closes the server.
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
	err = s.initialise(ctx)
	if err == nil {
		err = s.launch(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", errors.Join(err, s.Close()))
	}
	return s, nil
}

// URL connects as the superuser postgres to the database postgres.
func (s *Server) URL() string { return s.url }

// Description names the running server and its programs in a few words.
func (s *Server) Description() string {
	return fmt.Sprintf("Postgres %s from %s, private and temporary", s.version, s.bin)
}

// Done is closed when the server has ended, for any reason.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

// Close stops the server and deletes its data. Open sessions are ended. Closing
// a closed server does nothing.
func (s *Server) Close() error {
	var err error
	if s.process != nil {
		err = s.process.Stop(syscall.SIGINT, stopTime) // SIGINT asks Postgres for a fast shutdown
	}
	return errors.Join(err, s.dir.remove())
}
