// Command aggregate adds an aggregate to all layers of the two services. These are the API and the
// events in proto/, the tables of both services, the owner's transactions, the topic with its
// subscription and schema, the read model, REST, gRPC, OpenAPI, Terraform and tests.
//
// The new files are made from templates. In existing files, the command only inserts lines. It
// finds the places by their text. The command compiles the result before it writes the first
// file. The tree must have no changes that are not committed, so that `git` can show the command's
// changes and undo them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"example.com/lockstep/internal/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], ".", os.Stdout, os.Stderr)
	stop()
	os.Exit(command.Exit(os.Stderr, "aggregate", " (see --help)", err))
}

const usage = `Usage, in the root of the repository:
  go run ./cmd/aggregate --name comment --fields text:string,stars:int32 [--parent video]

`

// run adds the aggregate to the repository at root.
func run(ctx context.Context, args []string, root string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("aggregate", flag.ContinueOnError)
	name := flags.String("name", "", "NAME: the aggregate, one word in lower case, singular")
	fields := flags.String("fields", "", "FIELDS: NAME:TYPE with commas between; the types are "+kindNames)
	parent := flags.String("parent", "", "PARENT: an aggregate below which each one is created and listed (optional)")
	if err := command.ParseOrHelp(flags, args, usage, stdout); err != nil {
		return err
	}
	a, err := parse(*name, *fields, *parent)
	if err != nil {
		return command.Usagef("%w", err)
	}
	if err := checkTree(ctx, root); err != nil {
		return err
	}
	c, err := plan(root, a)
	if err != nil {
		return err
	}
	if err := c.complete(ctx, stderr); err != nil {
		return fmt.Errorf("nothing was written: %w", err)
	}
	if checkTree(ctx, c.root) != nil { // an edit since the first check would be lost
		return errors.New("nothing was written: files were changed meanwhile; commit them, and run it again")
	}
	if err := c.write(); err != nil {
		return fmt.Errorf("not all files are written; `git checkout . && git clean -fd` takes them back: %w", err)
	}
	fmt.Fprintf(stdout, "%s: %d new files, %d changed. Next: make generate (which `make aggregate` does itself) and make test.\n",
		a.Name, len(c.created), len(c.files)-len(c.created))
	return nil
}
