package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"

	"example.com/lockstep/internal/env"
	"example.com/lockstep/internal/localbroker"
)

// provision never falls back to the real Pub/Sub, where Terraform creates the
// same things: without an emulator's address there is nothing to do.
func provision(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("provision", flag.ContinueOnError)
	watch := flags.Bool("watch", false, "")
	check := flags.Bool("check", false, "")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *watch && *check {
		return usagef("--watch and --check exclude each other")
	}
	vars := env.New(getenv)
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
		fmt.Fprintln(stdout, "watching", addr)
		return localbroker.Watch(ctx, addr, project, func(made localbroker.Provisioned, err error) {
			sayProvisioned(stdout, made)
			if err != nil {
				fmt.Fprintln(stderr, "dev:", err)
			}
		})
	}
	made, err := localbroker.Provision(ctx, addr, project)
	sayProvisioned(stdout, made)
	return err
}

func checkProvisioned(ctx context.Context, addr, project string) error {
	absent, err := localbroker.Missing(ctx, addr, project)
	if err == nil && len(absent) > 0 {
		err = fmt.Errorf("not provisioned: %s", strings.Join(absent, ", "))
	}
	return err
}

func sayProvisioned(stdout io.Writer, made localbroker.Provisioned) {
	for _, name := range made.Created {
		fmt.Fprintln(stdout, "created ", name)
	}
	for _, name := range made.Existing {
		fmt.Fprintln(stdout, "existing", name)
	}
	for _, name := range made.Changed {
		fmt.Fprintln(stdout, "changed ", name)
	}
	for _, name := range made.Left {
		fmt.Fprintln(stdout, "left out", name, "(this broker has no schemas of protocol buffers)")
	}
}
