// Package broker provides a Pub/Sub for each run: a server in its own process
// on loopback, either the repository's own or one that it is compared with, and
// a client of it.
package broker

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/lab/bench/rig/process"
	"example.com/lockstep/localpubsub/peer"
)

// Command is the argument with which this binary calls [Serve].
const Command = "serve"

// The kinds of Pub/Sub that [Serve] serves.
const (
	Ours     = "ours"
	Emulator = "emulator"
	Pstest   = "pstest"
)

// A server is a running server of any kind.
type server interface {
	Addr() string
	Done() <-chan struct{}
	Close() error
}

// Serve serves an empty Pub/Sub of a --kind on a free port until ctx ends, and
// prints its address and process id. With --profile it writes a CPU profile to
// that file, starting at the first SIGUSR1.
func Serve(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	kind := flags.String("kind", Ours, "")
	profile := flags.String("profile", "", "")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%s: %w", Command, err)
	}
	start := make(chan os.Signal, 1)
	signal.Notify(start, syscall.SIGUSR1)
	running, err := serve(ctx, *kind)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.Close()) }()
	pid := os.Getpid()
	if *kind == Emulator {
		pid = process.ChildOf(pid)
	}
	process.Ready(stdout, running.Addr(), pid)
	select {
	case <-ctx.Done():
		return nil
	case <-running.Done():
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

func serve(ctx context.Context, kind string) (server, error) {
	const anyPort = "127.0.0.1:0"
	switch kind {
	case Emulator:
		return peer.StartEmulator(ctx, anyPort)
	case Pstest:
		return peer.StartPstest(ctx, anyPort)
	}
	return broker.Start(ctx, broker.Options{})
}
