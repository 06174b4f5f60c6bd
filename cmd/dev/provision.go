package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	"example.com/lockstep/internal/env"
	"example.com/lockstep/internal/localbroker"
)

// provision never falls back to the real Pub/Sub, where Terraform creates the
// same things: without an emulator's address there is nothing to do.
func provision(ctx context.Context, args []string, getenv func(string) string, stdout io.Writer) error {
	if err := parse(flag.NewFlagSet("provision", flag.ContinueOnError), args); err != nil {
		return err
	}
	vars := env.New(getenv)
	vars.Required(emulatorHost)
	addr := vars.HostPort(emulatorHost, "")
	project := vars.String("GOOGLE_CLOUD_PROJECT", defaultProject)
	if err := vars.Err(); err != nil {
		return fmt.Errorf("provision works on a local emulator only: %w", err)
	}
	made, err := localbroker.Provision(ctx, addr, project)
	for _, name := range made.Created {
		fmt.Fprintln(stdout, "created ", name)
	}
	for _, name := range made.Existing {
		fmt.Fprintln(stdout, "existing", name)
	}
	return err
}
