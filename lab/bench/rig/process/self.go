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

	"example.com/lockstep/internal/local/process"
)

// Ready informs the parent process that a server serves on addr, in the process
// pid: the server may be a child of this process.
func Ready(w io.Writer, addr string, pid int) { fmt.Fprintf(w, readyLine+"\n", addr, pid) }

// readyLine is the only output of a server: its address and its process id. The
// semicolon distinguishes a whole line from the start of one.
const readyLine = "ready %s %d ;"

const (
	startTime = time.Minute
	grace     = 10 * time.Second
	// pollInterval is the pause between two checks of a starting server.
	pollInterval = 5 * time.Millisecond
)

// Server is this binary running as a server in its own process.
type Server struct {
	Addr    string
	PID     int // of the server itself, possibly a child of the started process
	cmd     *exec.Cmd
	process *process.Process
}

// Start starts this binary with additional environment variables, and returns
// when it has called [Ready]. An error has the output that it printed instead.
func Start(ctx context.Context, environment []string, args ...string) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), environment...)
	process, err := process.Start(cmd, syscall.SIGTERM)
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

// Signal sends sig to the started process.
func (s *Server) Signal(sig os.Signal) error { return s.cmd.Process.Signal(sig) }

// Close ends the process, and returns when it has ended.
func (s *Server) Close() error { return s.process.Stop(syscall.SIGTERM, grace) }
