// Command tf checks deploy/terraform without a cloud account. It uses the real google provider on a
// copy of the module, and sends no request to Google.
//
// LOCKSTEP_TF_PLUGINS names the folder of the provider. If the folder has no provider, Command tf
// downloads the provider from Terraform's registry. If the registry is not reachable, Command tf
// builds the provider from its Go module once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

const usage = `tf checks deploy/terraform without a cloud account.

Usage, in the root of the repository: build/tf COMMAND [flags]

Commands:
  check      format, validity, the tests with a mocked provider, who may do what
    -write     write who may do what to ` + grantsFile + ` instead of comparing
    -optional  without Terraform, or a provider that is here or can be downloaded: say so, and end well
  mutants    make wrong edits, one at a time, and show which level catches each; what a run has
             caught that was cut off is in ` + findingsFile + `, and the next one does the rest
    -only REGEXP  the wrong edits whose names match
  e2e        apply the module to a stand-in for Google Cloud, run both services on what it made,
             upgrade it from its earlier version, destroy it; takes minutes
    -update    write what was asked of Google Cloud to ` + requestsDir + ` instead of comparing
    -from REV  the earlier version; without it the latest tag's, or else the one before the last change

Environment:
  ` + pluginsVariable + `  where the provider is, or is put

Exit codes: 0 done, 1 failed, 2 wrong usage
`

// errUsage is wrapped by errors for a wrong command line.
var errUsage = errors.New("wrong usage")

// commands are the subcommands. args are the arguments after the name of the subcommand.
var commands = map[string]func(ctx context.Context, args []string, stdout io.Writer) error{
	"check":   check,
	"mutants": mutants,
	"e2e":     e2e,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs the subcommand and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		args = []string{""}
	}
	err := fmt.Errorf("%w: unknown command %q", errUsage, args[0])
	if command, known := commands[args[0]]; known {
		err = command(ctx, args[1:], stdout)
	}
	switch name := args[0]; {
	case errors.Is(err, flag.ErrHelp) || name == "help" || name == "-h" || name == "--help":
		fmt.Fprint(stdout, usage)
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintf(stderr, "tf: %v (help shows the usage)\n", err)
		return 2
	case err != nil:
		fmt.Fprintf(stderr, "tf %s: %v\n", name, err)
		return 1
	}
	return 0
}

// parse parses the flags of a subcommand. A subcommand takes no arguments except flags.
func parse(flags *flag.FlagSet, args []string) error {
	flags.SetOutput(io.Discard) // run prints the error
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	return err
}
