package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"example.com/lockstep/internal/local/process"
)

// A running provider serves all runs of Terraform. Without it, Terraform starts a provider for each
// run block of a test. This would take most of the time, because a provider describes a thousand
// resources.
type running struct {
	process *process.Process
	// attach is the environment variable, with its value, by which Terraform finds the provider.
	attach string
}

const (
	// startTime bounds the start of a provider, even on a busy machine.
	startTime = 2 * time.Minute
	// lookPause is the pause between two checks whether the provider has printed its address.
	lookPause = 20 * time.Millisecond
)

// attachment matches the line with the address that a provider prints.
var attachment = regexp.MustCompile(`(?m)^\s*(TF_REATTACH_PROVIDERS=)'(.+)'$`)

// startProvider starts the provider in the folder plugins. The caller must stop it.
func startProvider(ctx context.Context, plugins string) (*running, error) {
	found, err := filepath.Glob(filepath.Join(plugins, "terraform-provider-google*"))
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("%w: %s has no google provider", errMissing, plugins)
	}
	cmd := exec.Command(found[len(found)-1], "--debug")
	cmd.Env = environment()
	child, err := process.Start(cmd, syscall.SIGTERM)
	if err != nil {
		return nil, fmt.Errorf("start the provider: %w", err)
	}
	r := &running{process: child}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		if at := attachment.FindStringSubmatch(child.Output()); at != nil {
			r.attach = at[1] + at[2]
			return r, nil
		}
		select {
		case <-child.Done():
			return nil, fmt.Errorf("the provider has ended: %s", child.Output())
		case <-ctx.Done():
			_ = r.stop() // the cause is the context's
			return nil, fmt.Errorf("start the provider: %w: %s", ctx.Err(), child.Output())
		case <-time.After(lookPause):
		}
	}
}

func (r *running) stop() error { return r.process.Stop(syscall.SIGTERM, graceTime) }
