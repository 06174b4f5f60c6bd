// Command schema makes the Pub/Sub schemas of deploy/schemas from proto/: one
// definition for each topic. Pub/Sub validates the data of every message
// against it.
//
// Pub/Sub accepts a definition with one top-level message and no imports. So for each topic of
// package topics, the message Event of proto/AGGREGATE/events/v1/events.proto becomes a file of
// its own, with all the types that it uses nested in it. Data written with one of these two
// messages can be read with the other, byte for byte:
//
//   - a message, including Timestamp and other imported messages, is nested in Event under its own
//     name, with its field numbers, and so are the messages in it. Two messages with the same name
//     are refused
//   - oneof, map, repeated, `optional` and reserved fields stay as they are
//   - an enum becomes an int32, which has the same bytes. The reason is that Pub/Sub takes a new
//     value of an enum for an incompatible revision, and the next kind of event is such a value
//   - comments and options are left out, because they have no effect on bytes and each change of
//     the text costs one of the 20 revisions that a schema may have
//   - a message that contains itself is refused, and so is any syntax but proto3
//
// By Pub/Sub's own rules, the result must be the next revision of the released definition in
// deploy/schemas/released. TestNextRevision checks this.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"example.com/lockstep/deploy/schemas"
	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/topics"
)

func main() {
	os.Exit(command.Exit(os.Stderr, "schema", " (see --help)", run(context.Background(), os.Args[1:], topics.All, os.Stdout)))
}

func run(ctx context.Context, args []string, all []topics.Topic, stdout io.Writer) error {
	flags := flag.NewFlagSet("schema", flag.ContinueOnError)
	source := flags.String("proto", "proto", "where AGGREGATE/events/v1/events.proto are")
	out := flags.String("o", "deploy/schemas", "where the definitions go, a file for each topic")
	err := command.ParseFlags(flags, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(stdout, "Usage, in the root of the repository: go run ./cmd/schema [-proto DIR] [-o DIR]")
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return nil
	}
	if err != nil {
		return err
	}
	definitions, err := define(ctx, *source, all)
	if err != nil {
		return err
	}
	return write(*out, definitions)
}

// write leaves exactly these definitions in dir.
func write(dir string, definitions map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, schemas.File("*")))
	if err != nil {
		return err
	}
	for _, name := range old {
		if _, ok := definitions[filepath.Base(name)]; !ok {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	for name, text := range definitions {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
