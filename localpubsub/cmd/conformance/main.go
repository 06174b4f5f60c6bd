// Command conformance tests the documented behaviours of Pub/Sub. It tests the repository's local
// Pub/Sub, the official emulator and pstest, and prints the results as a Markdown table.
//
// With -project it tests the real service instead. A run takes a minute. It creates about 300
// topics, subscriptions, snapshots and schemas with names that begin with "conformance-", and
// deletes them again. It transfers less than 100 MB, which is far below the monthly free tier of 10
// GiB (https://cloud.google.com/pubsub/pricing). For dead letters, the project's Pub/Sub service
// agent needs the roles pubsub.publisher and pubsub.subscriber.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage. The code is also 1 if the first subject departs from
// a behaviour. The first subject is the repository's own server, or with -project the real service.
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
	"time"

	"example.com/lockstep/localpubsub/conformance"
)

// runTime bounds the whole run. A run takes about a minute.
const runTime = 10 * time.Minute

const usage = `conformance tries what is documented of Pub/Sub on local servers and prints a table.

Usage, in the root of this module: go run ./cmd/conformance [flags]

Flags:
  -only REGEXP    only behaviours whose name matches
  -write          put the table into ` + document + `
  -project P      try the real service, in this Google Cloud project, with the application's
                  default credentials, instead of the local servers; what is created there has
                  a name that begins with conformance- and is deleted again

Exit codes: 0 done, 1 failed or a behaviour departs in the repository's own (or the service), 2 wrong usage
`

// command is the parsed command line.
type command struct {
	only    *regexp.Regexp
	project string
	write   bool
}

var errUsage = errors.New("wrong usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes the command and returns the exit code. On stdout it prints only the table.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	c, err := parse(args)
	if err == nil {
		err = c.run(ctx, stdout, stderr)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintf(stderr, "conformance: %v (-help shows the usage)\n", err)
		return 2
	case err != nil:
		fmt.Fprintln(stderr, "conformance:", err)
		return 1
	}
	return 0
}

func parse(args []string) (command, error) {
	var c command
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run prints the error
	only := flags.String("only", "", "")
	flags.StringVar(&c.project, "project", "", "")
	flags.BoolVar(&c.write, "write", false, "")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return c, err
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err == nil && c.write && (*only != "" || c.project != "") {
		err = errors.New("-write takes a whole run of the local servers, without -only and -project")
	}
	if err == nil {
		c.only, err = regexp.Compile(*only)
	}
	if err != nil {
		return c, fmt.Errorf("%w: %w", errUsage, err)
	}
	return c, nil
}

func (c command) run(ctx context.Context, stdout, stderr io.Writer) error {
	var behaviours []conformance.Behaviour
	for _, b := range conformance.Behaviours() {
		if c.only.MatchString(b.Name) {
			behaviours = append(behaviours, b)
		}
	}
	if len(behaviours) == 0 {
		return fmt.Errorf("-only %s matches no behaviour", c.only)
	}
	columns, err := c.columns(ctx, behaviours, stderr)
	if err != nil {
		return err
	}
	t := table{behaviours: behaviours, columns: columns}
	t.print(stdout)
	if c.write {
		if err := t.write(document); err != nil {
			return err
		}
	}
	return verdict(columns, stderr)
}

// verdict prints each outcome that contradicts its subject's list of departures to stderr. It
// returns an error if the first subject departs from a behaviour.
func verdict(columns []column, stderr io.Writer) error {
	for _, c := range columns {
		for _, outcome := range c.outcomes {
			if err := outcome.Unexpected(c.subject); err != nil {
				fmt.Fprintf(stderr, "%s: %s: %v\n", c.subject.Name, outcome.Behaviour.Name, err)
			}
		}
	}
	if n := columns[0].departing(); n > 0 {
		return fmt.Errorf("%s departs from %d of %d behaviours", columns[0].subject.Name, n, len(columns[0].outcomes))
	}
	return nil
}
