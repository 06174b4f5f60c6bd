// Package broker has a Pub/Sub for each run: a server in a process of its own on
// loopback, the repository's own or one of those that it is compared with, and a
// client of it.
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

	"example.com/lockstep/cmd/bench/rig/process"
	"example.com/lockstep/internal/localbroker"
)

// Command is the command by which this binary calls [Serve].
const Command = "serve"

// Serve serves an empty Pub/Sub of some --kind on a free port until ctx ends, and
// prints where, and which process it is. With --profile it writes there where its
// CPU time goes from the first SIGUSR1 on.
func Serve(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	kind := flags.String("kind", "", "")
	profile := flags.String("profile", "", "")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%s: %w", Command, err)
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
