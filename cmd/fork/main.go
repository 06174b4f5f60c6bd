// Command fork copies this repository into a new directory as a module of its
// own: the first step towards a new pair.
//
// It copies the files that git would: tracked files, and new ones that are not
// ignored, in the state on disk. The history is not copied; the copy is a fresh
// git repository without a commit. The module path is replaced wherever it is
// written, the protobuf code is generated again (its descriptors contain the
// path), and nothing else is renamed. LICENSE stays as it is, because the
// license asks for the names of the authors in every copy.
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

	"example.com/lockstep/internal/command"
)

// generateTimeout is long enough to build the generators on a slow machine.
const generateTimeout = 15 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(command.Exit(os.Stderr, "fork", " (see --help)", err))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("fork", flag.ContinueOnError)
	module := flags.String("module", "", "path of the new module, such as example.org/acme/pair")
	dir := flags.String("dir", "", "where to put it; absent or empty (default ../<last element of the module>)")
	err := command.ParseFlags(flags, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(stdout, "Usage, in the root of the repository: go run ./cmd/fork --module PATH [--dir DIR]")
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return nil
	}
	if err != nil {
		return err
	}
	if err := checkModule(*module); err != nil {
		return command.Usagef("--module: %w", err)
	}
	if *dir == "" {
		*dir = filepath.Join("..", path.Base(*module))
	}
	if err := copyRepository(ctx, ".", *dir, *module); err != nil {
		return err
	}
	if err := generate(ctx, *dir, stderr); err != nil {
		return fmt.Errorf("%s is complete but for its generated code; run `make generate` there: %w", *dir, err)
	}
	fmt.Fprintf(stdout, "%s is now module %s. Next: cd %s && make test\n", *dir, *module, *dir)
	return nil
}

// generate runs the copy's own make, with the tools that are built here
// already.
func generate(ctx context.Context, dir string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, generateTimeout)
	defer cancel()
	tools, err := filepath.Abs(filepath.Join("build", "bin"))
	if err != nil {
		return fmt.Errorf("find tools: %w", err)
	}
	cmd := exec.CommandContext(ctx, "make", "-C", dir, "generate", "BIN="+tools)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd.Run()
}
