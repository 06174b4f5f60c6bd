// Command reference writes docs/grpc.md, the reference of the gRPC API, and docs/events.md, the contract of
// the events. It makes both from the definitions in proto/ and their comments.
//
// In docs/grpc.md each service has a chapter. The chapter has the comment of the service, its methods, and
// the fields of each request and answer. The other messages and the enums of a package follow the
// services of the package. intro.md has the part that applies to all services.
// TestReasonsAreDocumented compares the documented reasons of errors with the code.
//
// A package without services has events. docs/events.md has the topics, and the messages of these packages,
// after events.md, which has the rules for readers. TestAttributesAreDocumented compares the documented
// attributes with the code.
package main

import (
	"context"
	_ "embed"
	"flag"
	"io"
	"os"
	"path/filepath"

	"example.com/lockstep/internal/command"
)

var (
	//go:embed intro.md
	intro string
	//go:embed events.md
	rules string
)

func main() {
	os.Exit(command.Exit(os.Stderr, "reference", " (see --help)", run(context.Background(), os.Args[1:], os.Stdout)))
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("reference", flag.ContinueOnError)
	source := flags.String("proto", "proto", "where the definitions are")
	out := flags.String("o", "docs", "the folder to write to")
	const usage = "Usage, in the root of the repository: go run ./cmd/reference [-proto DIR] [-o DIR]\n"
	if err := command.ParseOrHelp(flags, args, usage, stdout); err != nil {
		return err
	}
	apis, events, err := load(ctx, *source)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(*out, "grpc.md"), []byte(intro+render(apis)), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(*out, "events.md"), []byte(rules+renderEvents(events)), 0o644)
}
