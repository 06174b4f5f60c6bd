package rig

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

// Ready tells the parent process that a server serves on addr. pid is the server's process, which
// may be a child of this process.
func Ready(w io.Writer, addr string, pid int) { fmt.Fprintf(w, readyLine+"\n", addr, pid) }

// readyLine is the only output of a server. It has the address and the process id of the server.
// The semicolon shows that the line is complete.
const readyLine = "ready %s %d ;"

const (
	startTime = time.Minute
	grace     = 10 * time.Second
	// pollInterval is the pause between two checks of a starting server.
	pollInterval = 5 * time.Millisecond
)

// Process is a process of this binary that runs a server. So the memory and CPU time of the server
// can be measured alone.
type Process struct {
	Addr    string
	PID     int // of the server itself, possibly a child of the started process
	cmd     *exec.Cmd
	running *process.Process
}

// StartProcess starts this binary with additional environment variables, and returns when the
// binary has called [Ready]. If it fails, the error has the output of the binary.
func StartProcess(ctx context.Context, environment []string, args ...string) (*Process, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), environment...)
	running, err := process.Start(cmd, syscall.SIGTERM)
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, running: running}
	if err := p.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Process) awaitReady(ctx context.Context) error {
	for {
		if n, _ := fmt.Sscanf(p.running.Output(), readyLine, &p.Addr, &p.PID); n == 2 && strings.HasSuffix(p.running.Output(), ";") {
			return nil
		}
		select {
		case <-p.running.Done():
			return fmt.Errorf("the server did not start: %s", p.running.Output())
		case <-ctx.Done():
			return fmt.Errorf("start a server: %w: %s", ctx.Err(), p.running.Output())
		case <-time.After(pollInterval):
		}
	}
}

// Signal sends sig to the started process.
func (p *Process) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Kill ends the process as a crash does, and returns when it has ended.
func (p *Process) Kill() error { return p.running.Stop(syscall.SIGKILL, grace) }

// Close ends the process, and returns when it has ended.
func (p *Process) Close() error { return p.running.Stop(syscall.SIGTERM, grace) }
