package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/local/broker"
)

// pubsub serves an empty Pub/Sub until ctx ends; provision creates the pair's
// resources in it.
func pubsub(ctx context.Context, c command.Call) (err error) {
	flags := flag.NewFlagSet("pubsub", flag.ContinueOnError)
	addr := flags.String("addr", "", "")
	if err := command.ParseFlags(flags, c.Args); err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(*addr); err != nil {
		return command.Usagef("pubsub needs --addr HOST:PORT")
	}
	server, err := broker.Start(ctx, broker.Options{Addr: *addr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	fmt.Fprintf(c.Out, "%s\nexport %s=%s\n", server.Description(), emulatorHost, server.Addr())
	select {
	case <-ctx.Done():
		return nil
	case <-server.Done():
		return errors.New("Pub/Sub has ended")
	}
}
