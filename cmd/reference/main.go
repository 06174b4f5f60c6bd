// Command reference writes docs/grpc.md, the reference of the gRPC API. It makes the reference from
// the definitions in proto/ and their comments.
//
// Each service has a chapter. The chapter has the comment of the service, its methods, and the
// fields of each request and answer. The other messages and the enums of a package follow the
// services of the package. intro.md has the part that applies to all services.
// TestReasonsAreDocumented compares the documented reasons of errors with the code.
package main

import (
	"context"
	_ "embed"
	"flag"
	"io"
	"os"

	"example.com/lockstep/internal/command"
)

//go:embed intro.md
var intro string

func main() {
	os.Exit(command.Exit(os.Stderr, "reference", " (see --help)", run(context.Background(), os.Args[1:], os.Stdout)))
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("reference", flag.ContinueOnError)
	source := flags.String("proto", "proto", "where the definitions are")
	out := flags.String("o", "docs/grpc.md", "the file to write")
	const usage = "Usage, in the root of the repository: go run ./cmd/reference [-proto DIR] [-o FILE]\n"
	if err := command.ParseOrHelp(flags, args, usage, stdout); err != nil {
		return err
	}
	packages, err := load(ctx, *source)
	if err != nil {
		return err
	}
	return os.WriteFile(*out, []byte(intro+render(packages)), 0o644)
}
