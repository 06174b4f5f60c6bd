// Package postgres runs a private, temporary Postgres server for a laptop or a test. It also
// derives the URLs with which the services' roles connect to a server.
//
// It uses the Postgres programs of the machine. If there are none, it downloads them once. The
// server lives in a temporary directory, listens on a free port of 127.0.0.1 and trusts every local
// connection, so it must not hold valuable data. Postgres refuses to run as root, so a root process
// runs it as an unprivileged user. The server ends with this process. On Linux the server ends even
// if the process is killed.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"
	"time"

	"example.com/lockstep/internal/local/process"
)

const (
	// startTime bounds Start after any download. A start takes 0.7 s on an idle machine, and far
	// longer on a machine that compiles on every core.
	startTime = 3 * time.Minute
	// stopTime bounds Close. A fast shutdown rolls back open transactions, and writes one
	// checkpoint.
	stopTime = 10 * time.Second
)

// Options configures a server. Its zero value is silent and fast.
type Options struct {
	// Log gets a line before a download, which takes a while. If it is nil, there is no output.
	Log io.Writer
	// Sync makes commits reach the disk, as in production. Without it the
	// server is several times faster, but an operating system crash destroys
	// its data.
	Sync bool
	// InMemory keeps the server's files in memory where Linux has room for them, unless TMPDIR
	// names a directory. The creation of a database in memory takes a sixth of the time that it
	// takes on disk. InMemory is not for use with Sync.
	InMemory bool
}

// Server is a running Postgres.
type Server struct {
	bin     string
	dir     *directory
	opts    Options
	url     string
	version string // such as 17.5
	process *process.Process
	port    int
	done    chan struct{}
	crashed atomic.Pointer[process.Process] // the last process that Crash ended
}

// Start returns when the server accepts connections. If no Postgres can be obtained, the error
// wraps [ErrNotInstalled], which names in one line the package to install. The caller closes the
// server.
func Start(ctx context.Context, opts Options) (*Server, error) {
	if opts.Log == nil {
		opts.Log = io.Discard
	}
	bin, err := findBinaries(ctx, opts.Log)
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	dir, err := newDirectory(opts.InMemory)
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	s := &Server{bin: bin, dir: dir, opts: opts, done: make(chan struct{})}
	err = s.initialise(ctx)
	if err == nil {
		err = s.launch(ctx, freePort)
	}
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", errors.Join(err, s.Close()))
	}
	go s.watch(s.process)
	return s, nil
}

// URL returns a URL that connects as the superuser postgres to the database postgres.
func (s *Server) URL() string { return s.url }

// Description names the running server and its programs in a few words.
func (s *Server) Description() string {
	return fmt.Sprintf("Postgres %s from %s, private and temporary", s.version, s.bin)
}

// Done is closed when the server has ended, unless Crash has ended it.
func (s *Server) Done() <-chan struct{} { return s.done }

func (s *Server) watch(p *process.Process) {
	<-p.Done()
	if s.crashed.Load() != p {
		close(s.done)
	}
}

// Crash ends the server without a shutdown. Sessions break, and no checkpoint is written, but the
// data stays. Recover starts the server again. Crash, Recover and Close must not be called at the
// same time.
func (s *Server) Crash() error {
	s.crashed.Store(s.process)
	return s.process.Stop(syscall.SIGQUIT, stopTime) // SIGQUIT asks Postgres to abort
}

// Recover starts a crashed server at its earlier address, which its clients have, and returns when it
// has replayed its log and accepts connections. If another process has taken the port meanwhile,
// Recover waits until the port is free, for a limited time.
func (s *Server) Recover(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := s.launch(ctx, s.earlierPort); err != nil {
		return fmt.Errorf("start postgres again: %w", err)
	}
	go s.watch(s.process)
	return nil
}

// Close stops the server and deletes its data. Open sessions are ended. Closing
// a closed server does nothing.
func (s *Server) Close() error {
	var err error
	if s.process != nil {
		err = s.process.Stop(syscall.SIGINT, stopTime) // SIGINT asks Postgres for a fast shutdown
	}
	return errors.Join(err, s.dir.remove())
}
