package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"example.com/lockstep/internal/child"
)

// Ready tells who started this process that it serves on addr, and which process
// does: the server may be a child of this one.
func Ready(w io.Writer, addr string, pid int) { fmt.Fprintf(w, readyLine+"\n", addr, pid) }

// readyLine is all that a server prints: its address and its process. The
// semicolon tells a whole line from the beginning of one.
const readyLine = "ready %s %d ;"

const (
	startTime = time.Minute
	grace     = 10 * time.Second
	// pollInterval is how often a starting server is looked at.
	pollInterval = 5 * time.Millisecond
)

// Server is this binary once more, as a server in a process of its own.
type Server struct {
	Addr    string
	PID     int // of the server itself, which may be a child of the process that was started
	cmd     *exec.Cmd
	process *child.Process
}

// Start starts this binary with more variables in its environment, and returns
// when it has called [ready]. An error says what it printed instead.
func Start(ctx context.Context, environment []string, args ...string) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), environment...)
	process, err := child.Start(cmd, syscall.SIGTERM)
	if err != nil {
		return nil, err
	}
	s := &Server{cmd: cmd, process: process}
	if err := s.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) awaitReady(ctx context.Context) error {
	for {
		if n, _ := fmt.Sscanf(s.process.Output(), readyLine, &s.Addr, &s.PID); n == 2 && strings.HasSuffix(s.process.Output(), ";") {
			return nil
		}
		select {
		case <-s.process.Done():
			return fmt.Errorf("the server did not start: %s", s.process.Output())
		case <-ctx.Done():
			return fmt.Errorf("start a server: %w: %s", ctx.Err(), s.process.Output())
		case <-time.After(pollInterval):
		}
	}
}

// Signal sends sig to the process that was started.
func (s *Server) Signal(sig os.Signal) error { return s.cmd.Process.Signal(sig) }

// Close ends it, and returns when it has ended.
func (s *Server) Close() error { return s.process.Stop(syscall.SIGTERM, grace) }
