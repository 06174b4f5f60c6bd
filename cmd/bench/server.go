package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"example.com/lockstep/cmd/bench/measure"
	"example.com/lockstep/internal/child"
	"example.com/lockstep/internal/localbroker"
)

// serveCommand makes this binary a Pub/Sub server: each server that is measured
// has a process of its own, whose memory and CPU are its alone.
const serveCommand = "serve"

const (
	startTime = time.Minute
	stopTime  = 10 * time.Second
	// pollInterval is how often a starting server is looked at.
	pollInterval = 5 * time.Millisecond
)

// serve serves an empty Pub/Sub on a free port until ctx ends, and prints where,
// and which process it is. With --profile it writes there where its CPU time goes
// from the first SIGUSR1 on.
func serve(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet(serveCommand, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	kind := flags.String("kind", "", "")
	profile := flags.String("profile", "", "")
	if err := flags.Parse(args); err != nil {
		return usageError{err}
	}
	start := make(chan os.Signal, 1)
	signal.Notify(start, syscall.SIGUSR1)
	server, err := localbroker.Start(ctx, localbroker.Options{Kind: localbroker.Kind(*kind)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	pid := os.Getpid()
	if *kind == string(localbroker.Official) {
		pid = childOf(pid)
	}
	fmt.Fprintf(stdout, readyLine+"\n", server.Addr(), pid)
	select {
	case <-ctx.Done():
		return nil
	case <-server.Done():
		return errors.New("the server has ended")
	case <-start:
	}
	stop, err := profileCPU(*profile)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return stop()
}

// profileCPU profiles this process until stop is called.
func profileCPU(name string) (stop func() error, err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

// readyLine is all that a server prints: its address and its process. The
// semicolon tells a whole line from the beginning of one.
const readyLine = "ready %s %d ;"

// server is a server, mostly of Pub/Sub, in a process of its own.
type server struct {
	cmd     *exec.Cmd
	process *child.Process
	addr    string
	pid     int // of the server itself, which for the emulator is not cmd's
}

// startServer starts an empty server. An emulator that is not installed is
// errMissing.
func startServer(ctx context.Context, args ...string) (*server, error) {
	return startSelf(ctx, nil, append([]string{serveCommand}, args...)...)
}

// startSelf starts this binary with more variables in its environment, and returns
// when it has printed readyLine.
func startSelf(ctx context.Context, environment []string, args ...string) (*server, error) {
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
	s := &server{cmd: cmd, process: process}
	if err := s.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *server) awaitReady(ctx context.Context) error {
	for {
		if n, _ := fmt.Sscanf(s.process.Output(), readyLine, &s.addr, &s.pid); n == 2 && strings.HasSuffix(s.process.Output(), ";") {
			return nil
		}
		select {
		case <-s.process.Done():
			if output := s.process.Output(); strings.Contains(output, localbroker.ErrNotInstalled.Error()) {
				return fmt.Errorf("%w: %w", measure.ErrMissing, localbroker.ErrNotInstalled)
			}
			return fmt.Errorf("the server did not start: %s", s.process.Output())
		case <-ctx.Done():
			return fmt.Errorf("start a server: %w: %s", ctx.Err(), s.process.Output())
		case <-time.After(pollInterval):
		}
	}
}

// profile starts the CPU profile that the server was started with. It is written
// when the server is closed.
func (s *server) profile() error { return s.cmd.Process.Signal(syscall.SIGUSR1) }

func (s *server) close() error { return s.process.Stop(syscall.SIGTERM, stopTime) }
