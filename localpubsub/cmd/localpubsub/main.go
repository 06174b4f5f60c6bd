// Command localpubsub serves a Pub/Sub on this machine until a signal ends it. The documentation of
// package localpubsub says which semantics of the service it keeps.
//
// Exit codes: 0 if a signal ended the command, 1 if the command failed, 2 for wrong usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"example.com/lockstep/localpubsub"
	"example.com/lockstep/localpubsub/internal/setup"
)

const (
	defaultAddr = "127.0.0.1:8085"
	// setupTime bounds the creation of the resources in the file.
	setupTime = time.Minute
)

const usage = `localpubsub serves a local Google Cloud Pub/Sub over gRPC and REST, in memory, until Ctrl-C.

Usage: localpubsub [flags]

Flags:
  --addr HOST:PORT  where to listen (` + defaultAddr + `); port 0 is a free one. Whoever reaches
                    it may do everything
  --init FILE       create the projects, schemas, topics and subscriptions of a YAML file, and set its
                    faults; a fault of the file ends the command before it says where it listens

Point a client library at it by the variable that it prints: PUBSUB_EMULATOR_HOST.

Exit codes: 0 ended by a signal, 1 failed, 2 wrong usage
`

var errUsage = errors.New("wrong usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintf(os.Stderr, "localpubsub: %v (see --help)\n", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "localpubsub:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends. It prints the address after it has created all resources of the file.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("localpubsub", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	addr := flags.String("addr", defaultAddr, "")
	file := flags.String("init", "", "")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			_, err = fmt.Fprint(out, usage)
			return err
		}
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: unknown argument %q", errUsage, flags.Arg(0))
	}
	if _, _, err := net.SplitHostPort(*addr); err != nil {
		return fmt.Errorf("%w: --addr %q: want HOST:PORT", errUsage, *addr)
	}
	var wanted setup.File
	if *file != "" {
		if wanted, err = setup.Read(*file); err != nil {
			return fmt.Errorf("--init: %w", err)
		}
	}
	server, err := localpubsub.Start(localpubsub.Options{Addr: *addr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	if err := apply(ctx, wanted, server); err != nil {
		return fmt.Errorf("--init %s: %w", *file, err)
	}
	if _, err := fmt.Fprintf(out, "export PUBSUB_EMULATOR_HOST=%s\n", server.Addr()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func apply(ctx context.Context, wanted setup.File, server *localpubsub.Server) error {
	ctx, cancel := context.WithTimeout(ctx, setupTime)
	defer cancel()
	return wanted.Apply(ctx, server)
}
