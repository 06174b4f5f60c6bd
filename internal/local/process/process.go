// Package process runs a server program that must not outlive this process.
//
// On Linux the kernel ends the child when this process ends, even by SIGKILL. On other systems the
// child ends only if this process calls [Process.Stop] before it exits, or if the child is the service
// of an [Instance]. A child has a process group of its own, so only this process receives a Ctrl-C in
// the terminal. This process then stops its children when nothing needs them any more.
//
// An [Instance] is a service whose process may be replaced by another one.
package process

import (
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// drainTime bounds the wait for output after the child has ended, because a grandchild may hold the
// pipe a little longer.
const drainTime = 2 * time.Second

// Process is a running child.
type Process struct {
	cmd    *exec.Cmd
	output tail
	done   chan struct{}
}

// Start starts cmd, and keeps its output for [Process.Output]. If cmd has a Stderr, the output goes
// there, too. What that Stderr does not take is dropped, and the child goes on. On Linux, if this
// process ends before cmd, cmd gets the signal orphaned.
func Start(cmd *exec.Cmd, orphaned syscall.Signal) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	var out io.Writer = &p.output
	if cmd.Stderr != nil {
		out = copied{&p.output, cmd.Stderr}
	}
	cmd.Stdout, cmd.Stderr = out, out
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

// run locks its goroutine to one thread until the child has ended. Linux signals the child when the
// thread that started it ends, even if the process of that thread goes on.
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

func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// PID returns the number of the process, which may have ended.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output returns the end of the child's output.
func (p *Process) Output() string { return p.output.String() }

// Stop sends sig and waits until the child has ended. If that takes longer than grace, Stop kills
// the child and returns an error that says so. If the child has ended already, Stop does nothing.
func (p *Process) Stop(sig syscall.Signal, grace time.Duration) error {
	if p.ended() {
		return nil
	}
	_ = p.cmd.Process.Signal(sig) // fails only when it has ended meanwhile
	select {
	case <-p.done:
		return nil
	case <-time.After(grace):
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return fmt.Errorf("stop %s: killed, still running %s after %s", p.cmd.Path, grace, sig)
}

// copied writes to a tail and to another writer, and never fails. After an error package exec would
// close the child's output, and the child's next line would end the child. But a full disk or a
// closed terminal of this process is no reason to end a service.
type copied struct {
	*tail

	to io.Writer
}

func (c copied) Write(b []byte) (int, error) {
	_, _ = c.to.Write(b)
	return c.tail.Write(b)
}

// keep is how many bytes of a child's output are kept. These are some thirty lines, enough to
// explain a failed start.
const keep = 4 << 10

// tail keeps the last bytes that were written to it. Its zero value is ready.
type tail struct {
	mu  sync.Mutex
	end []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, b...)
	if over := len(t.end) - keep; over > 0 {
		t.end = append(t.end[:0], t.end[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.end))
}
