// Package command has the command line and the reader of the environment that the services share.
//
// Subcommands are `serve` (the default), `migrate`, `health`, `version`, `help`, and the
// tools that a service brings along. An [Environment] reads the settings of a process once,
// and reports all their faults in one error.
//
// `help`, `--help`, `version` and `--version` print to stdout and need no environment.
// The exit code is 0 after success, 1 after a failure and 2 after wrong usage. An error
// goes to stderr. If the environment is wrong, the error has a line for each wrong variable.
package command

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"example.com/lockstep/migrations"
)

// Service has the parts in which one service's command line differs from another's.
type Service struct {
	// Name is the name of the service and of its schema.
	Name migrations.Service
	// About is one line for the usage text. Environment has one line or more for each variable that
	// Configure reads besides DATABASE_URL.
	About, Environment string
	// Flags declares the flags of serve, which Configure uses. Flags may be nil. local is the
	// result of Environment.Local. The default of a flag may depend on local.
	Flags func(flags *flag.FlagSet, local bool)
	// Configure reads the settings of serve, except PORT, ADMIN_PORT and LOG_LEVEL. The
	// returned Process is used only if r has no error.
	Configure func(r *Environment) Process
	// Tools are the operator's commands.
	Tools []Tool
}

// Process is a configured service.
type Process struct {
	// Project is the Google Cloud project that the logs name as the project of their traces.
	Project string
	// Serve serves on lis until ctx ends, then drains. It closes lis. It serves health on admin, or
	// on lis if admin is nil because ADMIN_PORT is unset.
	Serve func(ctx context.Context, lis, admin net.Listener, log *slog.Logger) error
}

// usage is the format of the help text. Its arguments are the name of the service, the line About,
// the service's database role, the lines of the variables that Configure reads, and the lines of
// the tools.
//
//go:embed usage.txt
var usage string

// Main runs the command line of the process and returns the exit code. SIGTERM or SIGINT ends the
// command early.
func (s Service) Main() int {
	// If the reader of the output has ended, as in `dlq list | head`, a write fails. By default the write
	// would end the process, which could not give back what it holds.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return s.run(ctx, Call{
		Args: os.Args[1:], Getenv: os.Getenv, Out: os.Stdout, Err: os.Stderr, ErrIsTerminal: isTerminal(os.Stderr),
	})
}

// Run is Main for tests. The caller passes the arguments, the environment and the outputs that Main
// takes from the process.
func (s Service) Run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	return s.run(ctx, Call{Args: args, Getenv: getenv, Out: stdout, Err: stderr})
}

func (s Service) run(ctx context.Context, c Call) int {
	name := string(s.Name)
	hint := "\n" + name + " help lists the commands"
	if len(c.Args) > 0 {
		if t, ok := s.tool(c.Args[0]); ok {
			name += " " + t.Name
			c.Args, c.Out, c.Err = c.Args[1:], newOutput(ctx, c.Out), newOutput(ctx, c.Err)
			return Exit(c.Err, name, "\n"+name+" help lists the commands", withCause(ctx, t.Run(ctx, c)))
		}
	}
	command, err := s.parse(c.Args, c.Getenv)
	switch {
	case errors.Is(err, flag.ErrHelp) || command == "help":
		fmt.Fprintf(c.Out, usage, s.Name, s.About, s.Name.Role(), s.Environment, s.toolLines())
		s.printFlags(c.Out, c.Getenv)
		return 0
	case err != nil:
	default:
		err = s.actions()[command](ctx, c.Getenv, c.Out)
	}
	return Exit(c.Err, name, hint, err)
}

// withCause adds the signal that has ended ctx to the error of a tool. Otherwise the error says only that a context
// was canceled.
func withCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if !errors.Is(err, context.Canceled) || cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// actions are the commands that each service has, besides help.
func (s Service) actions() map[string]func(context.Context, func(string) string, io.Writer) error {
	return map[string]func(context.Context, func(string) string, io.Writer) error{
		"serve": s.serve, "migrate": s.migrate, "health": s.health, "version": s.version,
	}
}

// parse reads the command and its flags. The command is help, or one of actions. Only serve has
// flags.
func (s Service) parse(args []string, getenv func(string) string) (name string, err error) {
	name = "serve"
	switch {
	case len(args) > 0 && (args[0] == "--version" || args[0] == "-version"):
		name, args = "version", args[1:]
	case len(args) > 0 && !strings.HasPrefix(args[0], "-"):
		name, args = args[0], args[1:]
	}
	if s.actions()[name] == nil && name != "help" {
		return name, Usagef("unknown command %q", name)
	}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	if name == "serve" && s.Flags != nil {
		s.Flags(flags, NewEnvironment(getenv).Local())
	}
	return name, ParseFlags(flags, args)
}

func (s Service) printFlags(to io.Writer, getenv func(string) string) {
	if s.Flags == nil {
		return
	}
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	s.Flags(flags, NewEnvironment(getenv).Local())
	fmt.Fprint(to, "\nflags of serve:\n")
	flags.VisitAll(func(f *flag.Flag) {
		kind, about := flag.UnquoteUsage(f)
		fmt.Fprintf(to, "  -%s %s\n        %s (%s)\n", f.Name, kind, about, f.DefValue)
	})
}
