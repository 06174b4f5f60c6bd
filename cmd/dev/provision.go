package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/local/broker"
)

// provision creates the topics and subscriptions of the pair in an emulator. If there is no address
// of an emulator, provision returns an error. It never uses the real Pub/Sub, where Terraform
// creates the same resources.
func provision(ctx context.Context, c command.Call) error {
	flags := flag.NewFlagSet("provision", flag.ContinueOnError)
	watch := flags.Bool("watch", false, "")
	check := flags.Bool("check", false, "")
	ready := flags.String("ready", "", "")
	if err := command.ParseFlags(flags, c.Args); err != nil {
		return err
	}
	switch {
	case *watch && *check:
		return command.Usagef("--watch and --check exclude each other")
	case *ready != "" && !*watch && !*check:
		return command.Usagef("--ready belongs to --watch or --check")
	case *ready != "" && *check:
		_, err := os.Stat(*ready)
		return err
	}
	vars := command.NewEnvironment(c.Getenv)
	vars.Required(emulatorHost)
	addr := vars.HostPort(emulatorHost, "")
	project := vars.String("GOOGLE_CLOUD_PROJECT", defaultProject)
	if err := vars.Err(); err != nil {
		return fmt.Errorf("provision works on a local emulator only: %w", err)
	}
	switch {
	case *check:
		return checkProvisioned(ctx, addr, project)
	case *watch:
		return watchOver(ctx, c, addr, project, *ready)
	}
	fmt.Fprintln(c.Err, "provisioning", addr) // Provision waits for a broker that may still be starting
	made, err := broker.Provision(ctx, addr, project)
	sayProvisioned(c.Out, made)
	return err
}

// watchOver creates the missing resources, and creates them again whenever the emulator has lost
// them. When all resources exist, watchOver creates the file ready, unless that name is empty. A
// service that waits for its topics may start once the file exists. The file stays if the emulator
// goes away.
func watchOver(ctx context.Context, c command.Call, addr, project, ready string) error {
	if ready != "" {
		// A run that was killed may have left the file.
		if err := os.Remove(ready); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		defer os.Remove(ready) // if this fails, the next run removes the file
	}
	fmt.Fprintln(c.Out, "watching", addr)
	return broker.Watch(ctx, addr, project, func(made broker.Provisioned, err error) {
		sayProvisioned(c.Out, made)
		if err == nil && ready != "" {
			err = os.WriteFile(ready, nil, 0o644)
		}
		if err != nil {
			fmt.Fprintln(c.Err, "dev:", err)
		}
	})
}

func checkProvisioned(ctx context.Context, addr, project string) error {
	absent, err := broker.Missing(ctx, addr, project)
	if err == nil && len(absent) > 0 {
		err = fmt.Errorf("not provisioned: %s", strings.Join(absent, ", "))
	}
	return err
}

func sayProvisioned(stdout io.Writer, made broker.Provisioned) {
	for _, name := range made.Created {
		fmt.Fprintln(stdout, "created ", name)
	}
	for _, name := range made.Existing {
		fmt.Fprintln(stdout, "existing", name)
	}
	for _, name := range made.Changed {
		fmt.Fprintln(stdout, "changed ", name)
	}
	for _, topic := range made.Bounded {
		fmt.Fprintln(stdout, "bounded ", topic, "accepts only these revisions of its schema, and refuses events of others")
	}
	for _, name := range made.Left {
		fmt.Fprintln(stdout, "left out", name, "(this broker has no schemas of protocol buffers)")
	}
}

// pubsub serves an empty Pub/Sub until ctx ends. The command provision can create the pair's
// resources in this Pub/Sub.
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
