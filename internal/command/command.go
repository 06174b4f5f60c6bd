// Package command is the command line that the services share: `serve` (the
// default), `migrate` and `help`.
//
// `help` and `--help` work without an environment and go to stdout. Exit codes:
// 0 done, 1 failed, 2 wrong usage; an error is one line on stderr.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/lockstep/internal/env"
	"example.com/lockstep/internal/telemetry"
	"example.com/lockstep/migrations"
)

// flushTimeout is what the drain leaves of Cloud Run's 10 seconds for the last
// traces.
const flushTimeout = time.Second

// Service is what makes the command line one service's.
type Service struct {
	Name   string
	Usage  string
	Schema migrations.Service
	// Configure reads the environment of serve; its error names the variables.
	Configure func(getenv func(string) string) (Process, error)
}

// Process is a configured service.
type Process struct {
	Port     int
	Project  string
	LogLevel slog.Level
	// Serve serves on lis, which it closes, until ctx ends, and then drains.
	Serve func(ctx context.Context, lis net.Listener, log *slog.Logger) error
}

// Main runs the process's command line until it is done, or SIGTERM or SIGINT
// has ended it, and returns the exit code.
func (s Service) Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return s.Run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
}

// Run is Main with everything that it takes from the process.
func (s Service) Run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	name, err := parse(args)
	action, known := map[string]func(context.Context, func(string) string, io.Writer) error{
		"serve": s.serve, "migrate": s.migrate,
	}[name]
	switch {
	case errors.Is(err, flag.ErrHelp) || name == "help":
		fmt.Fprint(stdout, s.Usage)
		return 0
	case err == nil && !known:
		err = fmt.Errorf("unknown command %q", name)
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n%s help lists the commands\n", s.Name, err, s.Name)
		return 2
	}
	if err := action(ctx, getenv, stdout); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", s.Name, err)
		return 1
	}
	return 0
}

// parse knows no flag but --help.
func parse(args []string) (name string, err error) {
	name = "serve"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // Run prints the error
	if err = flags.Parse(args); err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return name, err
}

func (s Service) serve(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	p, err := s.Configure(getenv)
	if err != nil {
		return err
	}
	log := telemetry.Logger(stdout, p.LogLevel, s.Name, p.Project)
	flush, err := telemetry.Setup(ctx, s.Name)
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(p.Port)))
	if err != nil {
		return err
	}
	err = p.Serve(ctx, lis, log)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if err := flush(ctx); err != nil {
		log.WarnContext(ctx, "last telemetry not sent", "error", err)
	}
	return err
}

func (s Service) migrate(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	r := env.New(getenv)
	url, level := r.RequiredURL("DATABASE_URL"), r.Level("LOG_LEVEL", slog.LevelInfo)
	if err := r.Err(); err != nil {
		return err
	}
	return migrations.Up(ctx, url, s.Schema, telemetry.Logger(stdout, level, s.Name, ""))
}
