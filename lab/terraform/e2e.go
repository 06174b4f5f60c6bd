package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/lockstep/internal/local/postgres"
)

// compileTime bounds the build of both services with an empty build cache.
const compileTime = 10 * time.Minute

// An e2eRun is the state that all projects of one run of e2e share.
type e2eRun struct {
	plugins  string // the provider's directory
	binaries string // the directory of both built services
	postgres *postgres.Server
	earlier  revision
	update   bool

	mu      sync.Mutex // guards out and the server's roles: projects run at the same time
	out     io.Writer
	started time.Time
}

// e2e applies the module as its README describes, with stand-ins for Google's services.
func e2e(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("e2e", flag.ContinueOnError)
	update, from := flags.Bool("update", false, ""), flags.String("from", "", "")
	if err := parse(flags, args); err != nil {
		return err
	}
	plugins, err := obtain(ctx, true, stdout)
	if err != nil {
		return err
	}
	earlier, err := findEarlier(ctx, *from)
	if err != nil {
		return err
	}
	r := &e2eRun{plugins: plugins, update: *update, earlier: earlier, out: stdout, started: time.Now()}
	return r.run(ctx)
}

func (r *e2eRun) run(ctx context.Context) (err error) {
	if r.binaries, err = os.MkdirTemp("", "lockstep-e2e-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.binaries)) }()
	if err := r.build(ctx); err != nil {
		return err
	}
	if r.postgres, err = postgres.Start(ctx, postgres.Options{Log: r.out}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.postgres.Close()) }()
	r.did("start", r.postgres.Description())

	// An apply mostly waits in the provider. So both applies can run at the same time.
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.inProject(ctx, "fresh", r.fresh) })
	group.Go(func() error {
		if r.earlier.tree == nil {
			r.did("upgrade", "skipped: "+r.earlier.absent)
			return nil
		}
		return r.inProject(ctx, "upgrade", r.upgrade)
	})
	return group.Wait()
}

// build builds the binaries that run in place of the images.
func (r *e2eRun) build(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, compileTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", r.binaries+string(filepath.Separator),
		"./services/video/cmd/video", "./services/catalog/cmd/catalog")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the services: %w: %s", err, output)
	}
	return nil
}

// inProject calls live with a new project, and then closes the project.
func (r *e2eRun) inProject(ctx context.Context, name string, live func(context.Context, *testProject) error) (err error) {
	p, err := r.newProject(ctx, name)
	defer func() { err = errors.Join(err, p.close()) }()
	if err == nil {
		err = live(ctx, p)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// did prints a finished step and the time since the start.
func (r *e2eRun) did(step, seen string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, "%6.1f s  %-28s ok  %s\n", time.Since(r.started).Seconds(), step, seen)
}
