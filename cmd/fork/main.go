// Command fork makes a team's own repository from this one. The new repository has another module
// path and the words of another domain. The new repository lacks the parts that serve only this
// repository.
//
// Command fork reads the files that git lists, in the state on disk. These are the tracked files
// and the new files that are not ignored. The fork does not get the history. It is a fresh git
// repository without a commit. LICENSE stays as it is, because the license requires the names of
// the authors in every copy.
//
// leave.go lists the files that a fork does not have. rename.go replaces the words of the sample
// domain. If a word has two meanings here, the rules in contexts.go decide which meaning an
// occurrence has. check.go refuses words that would collide with existing names, before anything is
// written. Generated files, such as the code of proto/, are generated again in the fork.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"time"

	"example.com/lockstep/cmd/fork/repo"
	"example.com/lockstep/internal/command"
)

// generateTimeout bounds the commands of Go and make that this program runs in a fork. It is long enough to
// build the generators on a slow machine.
const generateTimeout = 15 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(command.Exit(os.Stderr, "fork", " (see --help)", err))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	start := time.Now()
	o, err := parse(ctx, args, stdout)
	if err != nil {
		return err
	}
	if _, err := fork(ctx, ".", o.dir, o.module, current, o.to); err != nil {
		return err
	}
	if o.without {
		if err := withoutEngagements(ctx, o.dir); err != nil {
			return errors.Join(fmt.Errorf("--engagement no: %w", err), os.RemoveAll(o.dir)) // dir was empty or absent
		}
	}
	if err := writeRecord(ctx, ".", o); err != nil {
		return err
	}
	if err := generate(ctx, o.dir, stderr); err != nil {
		return fmt.Errorf("%s is complete but for its generated code; run `make generate proto-release` there: %w", o.dir, err)
	}
	if o.without {
		if err := compiles(ctx, o.dir); err != nil {
			return errors.Join(fmt.Errorf("--engagement no: %w", err), os.RemoveAll(o.dir))
		}
	}
	files, err := readAll(ctx, o.dir)
	if err != nil {
		return err
	}
	n := 0
	for _, f := range files {
		n += f.lines()
	}
	fmt.Fprintf(stdout, "%s: %d files, %d lines, in %.0f s\n", o.dir, len(files), n, time.Since(start).Seconds())
	fmt.Fprintf(stdout, "The module is %s, the local Pub/Sub %[1]s/localpubsub, without its conformance suite.\n"+
		"Next: cd %q && make test. Before your first change: git add -A && git commit -m origin && git branch as-forked,\n"+
		"so that later versions of the origin can be merged (docs/adapt.md).\n",
		o.module, o.dir)
	return nil
}

// options are the options of the command line. If without is true, the fork leaves out the second
// aggregate.
type options struct {
	module, dir string
	to          words
	without     bool
}

// parse reads the command line. If the fork is not possible, parse returns an error before anything
// is written. If the command line asks for the help, parse prints the help and returns
// [flag.ErrHelp].
func parse(ctx context.Context, args []string, stdout io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("fork", flag.ContinueOnError)
	flags.StringVar(&o.module, "module", "", "path of the new module, such as example.org/acme/shop")
	flags.StringVar(&o.dir, "dir", "", "where to put it; absent or empty (default ../<last element of the module>)")
	flags.StringVar(&o.to.aggregate, "aggregate", "", "the kind of rows, such as product (default "+current.aggregate+")")
	flags.StringVar(&o.to.plural, "plural", "", "several of them (default the regular plural)")
	flags.StringVar(&o.to.owner, "owner", "", "the service that writes them, such as inventory (default "+current.owner+")")
	flags.StringVar(&o.to.reader, "reader", "", "the service that has the read model, such as storefront (default "+current.reader+")")
	flags.StringVar(&o.to.name, "name", "", "the repository, such as shop (default "+current.name+")")
	engagement := flags.String("engagement", "yes", "no: without the second aggregate, and the counters and checkpoints that hang on it")
	const usage = "Usage, in the root of the repository: go run ./cmd/fork --module PATH [--dir DIR] [--aggregate WORD …]\n"
	if err := command.ParseOrHelp(flags, args, usage, stdout); err != nil {
		return o, err
	}
	if err := checkModule(o.module); err != nil {
		return o, command.Usagef("--module: %w", err)
	}
	if o.without, err = noEngagement(ctx, *engagement, "."); err != nil {
		return o, command.Usagef("--engagement: %w", err)
	}
	o.to = o.to.complete(current)
	if err := checkWords(current, o.to); err != nil {
		return o, command.Usagef("%w", err)
	}
	if o.without {
		if err := checkRemoval(o.module, o.to); err != nil {
			return o, command.Usagef("%w", err)
		}
	}
	if o.dir == "" {
		o.dir = filepath.Join("..", path.Base(o.module))
	}
	return o, nil
}

// fork copies the repository at src to a new repository at dir, without the generated code. It
// replaces the words in from by the words in to.
func fork(ctx context.Context, src, dir, module string, from, to words) ([]file, error) {
	if err := checkOutside(src, dir); err != nil {
		return nil, command.Usagef("--dir: %w", err)
	}
	if err := checkEmpty(dir); err != nil {
		return nil, fmt.Errorf("--dir: %w", err)
	}
	files, old, err := readRepository(ctx, src)
	if err != nil {
		return nil, err
	}
	if err := checkUnused(from, to, files); err != nil {
		return nil, command.Usagef("%w", err)
	}
	if files, err = renamed(files, from, to, old, module); err != nil {
		return nil, err
	}
	return files, write(ctx, dir, files)
}

// generate runs make in the fork. BIN names the folder of this repository's tools, so make does not
// build them again. Then generate tidies the modules of the fork.
func generate(ctx context.Context, dir string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, generateTimeout)
	defer cancel()
	tools, err := filepath.Abs(filepath.Join("build", "bin"))
	if err != nil {
		return fmt.Errorf("find tools: %w", err)
	}
	for _, args := range [][]string{
		{"make", "-C", dir, "generate", "proto-release", "BIN=" + tools},
		// The fork does not need the modules that only the left-out files import.
		{"go", "-C", dir, "mod", "tidy"},
		{"go", "-C", filepath.Join(dir, "localpubsub"), "mod", "tidy"},
	} {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr, cmd.Env = out, out, repo.Environment()
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
	}
	return nil
}
