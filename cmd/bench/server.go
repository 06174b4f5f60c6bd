package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"example.com/lockstep/cmd/bench/measure"
	"example.com/lockstep/cmd/bench/rig/process"
	"example.com/lockstep/internal/localbroker"
)

// serveCommand makes this binary a Pub/Sub server: each server that is measured
// has a process of its own, whose memory and CPU are its alone.
const serveCommand = "serve"

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
		pid = process.ChildOf(pid)
	}
	process.Ready(stdout, server.Addr(), pid)
	select {
	case <-ctx.Done():
		return nil
	case <-server.Done():
		return errors.New("the server has ended")
	case <-start:
	}
	stop, err := process.Profile(*profile)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return stop()
}

// pubsubServer is a server of Pub/Sub in a process of its own.
type pubsubServer struct{ *process.Server }

// startServer starts an empty server. An emulator that is not installed is
// errMissing.
func startServer(ctx context.Context, args ...string) (*pubsubServer, error) {
	s, err := process.Start(ctx, nil, append([]string{serveCommand}, args...)...)
	if err == nil {
		return &pubsubServer{s}, nil
	}
	if strings.Contains(err.Error(), localbroker.ErrNotInstalled.Error()) {
		err = fmt.Errorf("%w: %w", measure.ErrMissing, localbroker.ErrNotInstalled)
	}
	return nil, err
}

// profile starts the CPU profile that the server was started with. It is written
// when the server is closed.
func (s *pubsubServer) profile() error { return s.Signal(syscall.SIGUSR1) }
