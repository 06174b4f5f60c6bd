// Package process runs a server program that must not outlive this process.
//
// On Linux the kernel signals the child when this process ends, even by SIGKILL. On other systems
// the child ends only if this process calls [Process.Stop] before it exits. A child has its own
// process group, so a Ctrl-C in the terminal reaches only this process. This process can then stop
// its children when it no longer needs them.
package process

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// drainTime bounds the wait for output after the child has ended. A grandchild may hold the pipe a
// little longer.
const drainTime = 2 * time.Second

// Process is a running child.
type Process struct {
	cmd    *exec.Cmd
	output tail
	done   chan struct{}
}

// Start starts cmd, and keeps the end of its output for [Process.Output]. If this process ends
// before the child, the child gets the signal orphaned (on Linux only).
func Start(cmd *exec.Cmd, orphaned syscall.Signal) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	cmd.WaitDelay = drainTime
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	dieWithParent(cmd.SysProcAttr, orphaned)
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// run starts the child, and locks its OS thread until the child has ended. Linux sends the signal
// orphaned when the thread that started the child ends, not when the process ends.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = p.cmd.Wait() // the output shows how a server ended
	close(p.done)
}

// Done is closed when the child has ended, for any reason.
func (p *Process) Done() <-chan struct{} { return p.done }

// Output returns the end of the child's output.
func (p *Process) Output() string { return p.output.String() }

// Stop sends the signal sig and waits until the child has ended. If the child still runs after the
// duration grace, Stop kills the child and returns an error that says so. If the child has already
// ended, Stop does nothing.
func (p *Process) Stop(sig syscall.Signal, grace time.Duration) error {
	select {
	case <-p.done:
		return nil
	default:
		_ = p.cmd.Process.Signal(sig) // fails only if the child has ended meanwhile
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(grace):
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return fmt.Errorf("stop %s: killed, still running %s after %s", p.cmd.Path, grace, sig)
}
