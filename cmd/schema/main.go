// Command schema makes the Pub/Sub schemas in deploy/schemas from proto/. It makes one definition
// for each topic. Pub/Sub validates the data of every message against the definition of the topic.
//
// Pub/Sub accepts only a definition with one top-level message and no imports. So for each topic of
// package topics, Command schema makes a file of its own from the message Event of
// proto/AGGREGATE/events/v1/events.proto. In this file, all types that Event uses are nested in
// Event. The original Event and the nested Event have the same encoding, so each can read the data
// of the other. The rules are:
//
//   - Each message that Event uses is nested in Event, under its own name and with its field
//     numbers. This includes imported messages, such as Timestamp, and the messages that they
//     contain. Two messages with the same name are refused.
//   - oneof, map, repeated, `optional` and reserved fields stay as they are.
//   - An enum becomes an int32, which has the same encoding. With an enum, Pub/Sub would refuse a
//     revision that adds a value, and each new kind of event adds such a value.
//   - Comments and options are left out. They do not change the encoding. But each change of the
//     text costs one of the 20 revisions that a schema may have.
//   - A message that contains itself is refused, and so is any syntax but proto3.
//
// The result must be a valid next revision of the released definition in deploy/schemas/released,
// by Pub/Sub's own rules. TestNextRevision checks this.
package main

import (
	"context"
	"flag"
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
	const usage = "Usage, in the root of the repository: go run ./cmd/schema [-proto DIR] [-o DIR]\n"
	if err := command.ParseOrHelp(flags, args, usage, stdout); err != nil {
		return err
	}
	definitions, err := define(ctx, *source, all)
	if err != nil {
		return err
	}
	return write(*out, definitions)
}

// write writes the definitions to dir, and removes all other definitions from dir.
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
