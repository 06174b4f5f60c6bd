package process

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	// endTime bounds the wait for the end of the process. A service drains within 10 s after
	// SIGTERM.
	endTime = 15 * time.Second
	// inherited is the file descriptor of the listener in the service. It is the first descriptor
	// after stdin, stdout and stderr.
	inherited = 3
	// parent is the file descriptor of Instance.lives in the service.
	parent = 4
)

// Listener returns the inherited listener. The process of a service calls it. From then on this process ends
// when its parent ends, on every system (for [Start] only Linux does that). Otherwise the process would go on
// after its parent was killed, and keep the port.
func Listener() (net.Listener, error) {
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(parent, "parent")) // until the parent has ended
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}()
	file := os.NewFile(inherited, "listener")
	defer file.Close()
	lis, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("listener of the parent process: %w", err)
	}
	return lis, nil
}

// Command describes the service: its program with arguments, its whole environment, and the writer
// for its log lines.
type Command struct {
	Path string
	Args []string
	Env  []string
	Log  io.Writer
}

// State is the state of an instance at one time.
type State struct {
	// PID is the number of the running process, or 0 if none runs.
	PID int
	// Starts is how many processes were started so far.
	Starts int
}

// Instance is a service. Its process can be stopped, killed and started again while the listener
// stays open. The methods of Instance may be called at the same time, and take turns.
//
// The listener belongs to this process. The service inherits it, and gets it from [Listener]. While
// no process runs, connections wait in the listener's queue, as with a socket of systemd. The next
// process serves them. So a kill fails only the requests that the killed process had taken.
type Instance struct {
	command  Command
	listener *os.File
	// lives and alive are the two ends of a pipe. The service reads from lives. Nothing is written to
	// alive. When this process ends, alive closes, and the service reads the end of the pipe.
	lives, alive *os.File
	failed       chan error

	acting sync.Mutex // held during all of Start, Stop or Kill

	mu      sync.Mutex // guards the rest
	running *Process   // the last process, which may have ended
	asked   bool       // whether the last process was asked to end
	starts  int
}

// NewInstance returns an instance without a process. The instance serves connections of lis. The
// caller still closes lis. Close the instance after the last use.
func NewInstance(c Command, lis *net.TCPListener) (*Instance, error) {
	file, err := lis.File()
	if err != nil {
		return nil, err
	}
	lives, alive, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Instance{command: c, listener: file, lives: lives, alive: alive, failed: make(chan error, 1)}, nil
}

// Start starts a process. It returns an error if a process runs already. It does not wait until the
// new process is ready.
func (i *Instance) Start() error {
	i.acting.Lock()
	defer i.acting.Unlock()
	if i.State().PID != 0 {
		return errors.New("start: it runs")
	}
	cmd := exec.Command(i.command.Path, i.command.Args...)
	cmd.Env, cmd.Stderr, cmd.ExtraFiles = i.command.Env, i.command.Log, []*os.File{i.listener, i.lives}
	running, err := Start(cmd, syscall.SIGKILL)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.running, i.asked = running, false
	i.starts++
	go i.watch(running)
	return nil
}

// watch sends an error to i.failed if the process ends without Stop or Kill.
func (i *Instance) watch(running *Process) {
	<-running.Done()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.asked || i.running != running {
		return
	}
	select {
	case i.failed <- fmt.Errorf("the process of %s has ended: %s", i.command.Args, running.Output()):
	default: // one report is enough
	}
}

// Stop asks the process to drain, and waits until it has ended. If there is no process, Stop does
// nothing.
func (i *Instance) Stop() error { return i.end(syscall.SIGTERM) }

// Kill ends the process at once, as a crash does.
func (i *Instance) Kill() error { return i.end(syscall.SIGKILL) }

func (i *Instance) end(sig syscall.Signal) error {
	i.acting.Lock()
	defer i.acting.Unlock()
	i.mu.Lock()
	running := i.running
	i.asked = true
	i.mu.Unlock()
	if running == nil {
		return nil
	}
	return running.Stop(sig, endTime)
}

// State returns the present state.
func (i *Instance) State() State {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := State{Starts: i.starts}
	if i.running != nil && !i.running.ended() {
		s.PID = i.running.PID()
	}
	return s
}

// Failed returns a channel that gets an error when a process ends without Stop or Kill.
func (i *Instance) Failed() <-chan error { return i.failed }

// Close stops the process and gives up the listener.
func (i *Instance) Close() error {
	return errors.Join(i.Stop(), i.listener.Close(), i.lives.Close(), i.alive.Close())
}
