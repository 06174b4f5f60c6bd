package rig

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
	"example.com/lockstep/localpubsub/peer"
)

// BrokerCommand is the argument with which this binary calls [ServeBroker].
const BrokerCommand = "serve"

// The kinds of Pub/Sub that [ServeBroker] serves.
const (
	Ours     = "ours"
	Emulator = "emulator"
	Pstest   = "pstest"
)

// A pubsubServer is a running server of any kind.
type pubsubServer interface {
	Addr() string
	Done() <-chan struct{}
	Close() error
}

// ServeBroker serves an empty Pub/Sub on a free port until ctx ends. The flag --kind names the kind
// of Pub/Sub. ServeBroker prints the address and the process id of the Pub/Sub. The flag --profile
// names a file for a CPU profile of this process. The profile starts at the first SIGUSR1.
func ServeBroker(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet(BrokerCommand, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	kind := flags.String("kind", Ours, "")
	profile := flags.String("profile", "", "")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%s: %w", BrokerCommand, err)
	}
	start := make(chan os.Signal, 1)
	signal.Notify(start, syscall.SIGUSR1)
	running, err := startKind(ctx, *kind)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.Close()) }()
	pid := os.Getpid()
	if *kind == Emulator {
		pid = childOf(pid)
	}
	Ready(stdout, running.Addr(), pid)
	select {
	case <-ctx.Done():
		return nil
	case <-running.Done():
		return errors.New("the server has ended")
	case <-start:
	}
	stop, err := Profile(*profile)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return stop()
}

func startKind(ctx context.Context, kind string) (pubsubServer, error) {
	const anyPort = "127.0.0.1:0"
	switch kind {
	case Emulator:
		return peer.StartEmulator(ctx, anyPort)
	case Pstest:
		return peer.StartPstest(ctx, anyPort)
	}
	return broker.Start(ctx, broker.Options{})
}
