// Command bench is the program of `make bench`. It measures the project, its peers and its own
// limits, in one run on one machine.
//
// A series is a set of measurements that are taken in turns, A B C A B C. So a disturbance of the
// machine affects all of them. Each figure is the median of its runs. A ratio is computed in each
// turn, from measurements that are next to each other in time. The figure of a ratio is the median
// of these values. So this figure says more than the quotient of two figures in the table. It says
// far more than a comparison with a figure of another day.
//
//	pair           the whole pair under rising load: the knee, the overload, the recovery
//	visible        an event's whole path, from the commit to its visibility
//	outbox         the outbox, compared with the plain loop and bare limits
//	reads          reads with consistency tokens
//	inbox          the inbox, compared with the plain loop and bare limits
//	peers          the outbox, compared with other libraries
//	start          both services from exec to ready, and their memory at rest
//	telemetry      the pair with traces and metrics, without an endpoint, and without the SDK
//	localpubsub    the local Pub/Sub, compared with the official emulator and pstest
//
// A subject is a package with a function that returns series. The function table lists the subjects. The
// subjects use these packages:
//
//	measure        the parts of a series, how its turns are taken, and calls at a rate or as fast as possible
//	rig            the equipment: processes, brokers, Postgres, relays, a read model
//	report         tables on stdout, build/bench.json
//
// Exit codes: 0 done, 1 a measurement failed (the other measurements are still taken), 2 wrong
// usage. If a measurement needs something that this machine does not have, it is left out, and the
// tables say so.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"example.com/lockstep/internal/local/variables"
	"example.com/lockstep/lab/bench/inbox"
	"example.com/lockstep/lab/bench/localpubsub"
	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/outbox"
	"example.com/lockstep/lab/bench/pair"
	"example.com/lockstep/lab/bench/peers"
	"example.com/lockstep/lab/bench/reads"
	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/lab/bench/start"
	"example.com/lockstep/lab/bench/telemetry"
	"example.com/lockstep/lab/bench/visible"
)

const usage = `bench measures the project next to its peers and its limits.

Usage, in the root of the repository:
  bench [flags]   print the tables on stdout, the progress on stderr; write build/bench.json

Flags:
  --only REGEXP   take only the figures whose names match, and those that are measured with them
                  or that they are computed from
  --quick         seconds instead of minutes: does everything run? The figures are rough
  --full          more runs and samples, and the large tables

Environment:
  TEST_DATABASE_URL   administrator's URL of a Postgres to measure with. Without it a private,
                      temporary Postgres is started
`

// jsonFile is the file with the figures in a form for programs.
const jsonFile = "build/bench.json"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal, a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// usageError is an error in the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run runs the command and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := dispatch(ctx, args, stdout, stderr)
	var wrong usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return 0
	case errors.As(err, &wrong), errors.Is(err, measure.ErrNoMatch):
		fmt.Fprintf(stderr, "bench: %v (bench --help shows the usage)\n", err)
		return 2
	}
	fmt.Fprintln(stderr, "bench:", err)
	return 1
}

func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	if len(args) > 0 && args[0] == rig.BrokerCommand {
		return rig.ServeBroker(ctx, args[1:], stdout)
	}
	if len(args) > 0 && args[0] == reads.Command {
		return reads.Serve(ctx, stdout)
	}
	if len(args) > 0 && args[0] == peers.Command {
		return peers.Serve(ctx, args[1:], stdout)
	}
	if len(args) > 0 && args[0] == telemetry.Command {
		return telemetry.Serve(ctx, args[1:], stdout)
	}
	b, err := parse(args)
	if err != nil {
		return err
	}
	variables.Forget()
	b.Stdout, b.Stderr = stdout, stderr
	var p rig.Postgres
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	return b.Run(ctx, table(&p), jsonFile)
}

// table returns all series, in the order in which they are run and printed. Series that need a
// database get it from p.
func table(p *rig.Postgres) []measure.Series {
	return slices.Concat(pair.Series(p), visible.Series(p), outbox.Series(p), reads.Series(), inbox.Series(), peers.Series(p),
		start.Series(p), telemetry.Series(p), localpubsub.Series())
}

func parse(args []string) (measure.Bench, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run prints the error
	only := flags.String("only", "", "")
	isQuick := flags.Bool("quick", false, "")
	isFull := flags.Bool("full", false, "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return measure.Bench{}, err
	case err != nil:
		return measure.Bench{}, usageError{err}
	case flags.NArg() > 0:
		return measure.Bench{}, usagef("unexpected argument %q", strings.Join(flags.Args(), " "))
	case *isQuick && *isFull:
		return measure.Bench{}, usagef("--quick and --full exclude each other")
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return measure.Bench{}, usagef("--only: %w", err)
	}
	b := measure.Bench{Only: match, Size: measure.Normal}
	switch {
	case *isQuick:
		b.Size = measure.Quick
	case *isFull:
		b.Size = measure.Full
	}
	return b, nil
}
