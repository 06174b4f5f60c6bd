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

	"example.com/lockstep/cmd/bench/rig/process"
	"example.com/lockstep/internal/localbroker"
)

// Command is the argument with which this binary calls [Serve].
const Command = "serve"

// Serve serves an empty Pub/Sub of a --kind on a free port until ctx ends, and
// prints its address and process id. With --profile it writes a CPU profile to
// that file, starting at the first SIGUSR1.
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
