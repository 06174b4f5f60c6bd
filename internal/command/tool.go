package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Tool is a command of a service besides serve and migrate, such as `video
// outbox`.
type Tool struct {
	// Name is the argument that selects the tool. About is its line in the usage text.
	Name, About string
	// Run executes the tool. It prints its own help to c.Out, and needs no environment for that. If
	// Run returns a UsageError, the process exits with 2. After any other error it exits with 1.
	Run func(ctx context.Context, c Call) error
}

// Call is the part of the process that a tool uses.
type Call struct {
	// Args are the arguments after the tool's name.
	Args     []string
	Getenv   func(string) string
	Out, Err io.Writer
	// ErrIsTerminal says that Err is a terminal, on which a line can be drawn again.
	ErrIsTerminal bool
}

// UsageError is the caller's mistake on the command line.
type UsageError struct{ error }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// ParseFlags parses a command line that has flags and no arguments. It returns flag.ErrHelp or a
// UsageError, and prints nothing.
func ParseFlags(flags *flag.FlagSet, args []string) error {
	flags.SetOutput(io.Discard)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return UsageError{err}
	case flags.NArg() > 0:
		return Usagef("unexpected argument %q", flags.Arg(0))
	}
	return nil
}

// ParseOrHelp is ParseFlags for a program without commands. If the command line asks for the help,
// ParseOrHelp prints usage and the flags to out.
func ParseOrHelp(flags *flag.FlagSet, args []string, usage string, out io.Writer) error {
	err := ParseFlags(flags, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(out, usage)
		flags.SetOutput(out)
		flags.PrintDefaults()
	}
	return err
}

// Exit returns the exit code of a program or tool that has ended with err. name is the name of that
// program or tool. Exit prints err to stderr, except flag.ErrHelp, which is a success. After a
// UsageError it also prints hint.
func Exit(stderr io.Writer, name, hint string, err error) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if _, wrong := errors.AsType[UsageError](err); wrong {
		fmt.Fprintf(stderr, "%s: %v%s\n", name, err, hint)
		return 2
	}
	fmt.Fprintf(stderr, "%s: %v\n", name, err)
	return 1
}

func (s Service) tool(name string) (Tool, bool) {
	i := slices.IndexFunc(s.Tools, func(t Tool) bool { return t.Name == name })
	if i < 0 {
		return Tool{}, false
	}
	return s.Tools[i], true
}

func (s Service) toolLines() string {
	var lines strings.Builder
	for _, t := range s.Tools {
		fmt.Fprintf(&lines, "  %-9s %s\n", t.Name, t.About)
	}
	return lines.String()
}

// isTerminal reports whether f is a terminal. The null device is a character device, as a terminal
// is, and jobs have it as stdin. isTerminal returns false for the null device.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	null, _ := os.Stat(os.DevNull)
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && !os.SameFile(info, null)
}
