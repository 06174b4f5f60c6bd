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
	// endTime bounds the end after SIGTERM: a service drains within 10 s.
	endTime = 15 * time.Second
	// inherited is the file descriptor of the listener in the service: the first after
	// stdin, stdout and stderr.
	inherited = 3
)

// Listener is the inherited listener, in the process of the service.
func Listener() (net.Listener, error) {
	file := os.NewFile(inherited, "listener")
	defer file.Close()
	lis, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("listener of the parent process: %w", err)
	}
	return lis, nil
}

// Command is the service: its program with arguments, its whole environment, and the writer
// of its log lines.
type Command struct {
	Path string
	Args []string
	Env  []string
	Log  io.Writer
}

// State is the state of an instance at one time.
type State struct {
	// PID is the number of the running process; 0 if none runs.
	PID int
	// Starts counts the processes so far.
	Starts int
}

// Instance is a service whose process can be stopped, killed and started again behind one
// listener. Its methods may be called at the same time; they take turns.
//
// The listener is this process's. The service inherits it, and finds it by [Listener]. While
// no process runs, connections wait in the listener's queue and are served by the next one,
// as by a socket of systemd. So a request fails by a kill only if the killed process had
// taken it.
type Instance struct {
	command  Command
	listener *os.File
	failed   chan error

	acting sync.Mutex // held by an action from its begin to its end

	mu      sync.Mutex // guards the rest
	running *Process   // the last one, which may have ended
	asked   bool       // to end
	starts  int
}

// NewInstance returns an instance without a process. It serves connections of lis, which stays the
// caller's. Close the instance after the last use.
func NewInstance(c Command, lis *net.TCPListener) (*Instance, error) {
	file, err := lis.File()
	if err != nil {
		return nil, err
	}
	return &Instance{command: c, listener: file, failed: make(chan error, 1)}, nil
}

// Start starts a process. It is an error if one runs. Start does not wait until the
// process is ready.
func (i *Instance) Start() error {
	i.acting.Lock()
	defer i.acting.Unlock()
	if i.State().PID != 0 {
		return errors.New("start: it runs")
	}
	cmd := exec.Command(i.command.Path, i.command.Args...)
	cmd.Env, cmd.Stderr, cmd.ExtraFiles = i.command.Env, i.command.Log, []*os.File{i.listener}
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

// watch reports an unrequested end.
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

// Stop asks the process to drain, and waits until it has ended. Without a process it does
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

// State is the present state.
func (i *Instance) State() State {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := State{Starts: i.starts}
	if i.running != nil && !i.running.ended() {
		s.PID = i.running.PID()
	}
	return s
}

// Failed gets an error when a process ends that neither Stop nor Kill has ended.
func (i *Instance) Failed() <-chan error { return i.failed }

// Close stops the process and gives up the listener.
func (i *Instance) Close() error { return errors.Join(i.Stop(), i.listener.Close()) }
