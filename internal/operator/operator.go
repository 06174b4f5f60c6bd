// Package operator is the command line for a person who looks after blocked
// events, restores, and the read model: `video outbox`, `video epoch`, `catalog dlq`,
// `catalog offset`, `catalog reconcile`, `catalog backfill`,
// `catalog rebuild`, and `erase` and `events` of both.
//
//	backlog      events that video has not published     video.outbox
//	             the lives of video's database           video.outbox_epochs
//	deadletter   events that catalog could not process   catalog.inbox, <subscription>.dlq
//	receipt      what became of an event at catalog      catalog.inbox
//	checkpoint   the position of a consumer              catalog.engagement_offsets
//	reconcile    rows of catalog that differ from video's
//	backfill     rows of video that catalog lacks          catalog.backfills
//	rebuild      a new copy of catalog's tables          catalog.rebuild_state
//	erasure      the data of a user                      all tables with text
//	audit        the actions: person, time and reason    operator_actions
//
// Those packages do the work; this one parses, asks and prints. Skip, purge, bump,
// redrive, discard, reset, reconcile --repair, rebuild and erase, which cannot be
// undone, only show their plan unless --yes is given or a person at the terminal
// types a reason. With --json a command prints exactly one JSON object to stdout. All other output goes to
// stderr.
package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

// A subcommand is one command of a tool.
type subcommand func(ctx context.Context, s *invocation) error

// tool is a tool with these subcommands. Its help is usage.
func tool(name, about, usage string, subcommands map[string]subcommand) command.Tool {
	return command.Tool{Name: name, About: about, Run: func(ctx context.Context, c command.Call) error {
		names := strings.Join(slices.Sorted(maps.Keys(subcommands)), ", ")
		if len(c.Args) == 0 {
			return command.Usagef("a command is missing: one of %s", names)
		}
		do, ok := subcommands[c.Args[0]]
		switch {
		case slices.Contains([]string{"help", "-h", "-help", "--help"}, c.Args[0]):
			fmt.Fprint(c.Out, usage)
			return nil
		case !ok:
			return command.Usagef("unknown command %q: want one of %s", c.Args[0], names)
		}
		return run(ctx, c, usage, do)
	}}
}

// single is a tool with one command, which has the tool's name.
func single(name, about, usage string, do subcommand) command.Tool {
	return command.Tool{Name: name, About: about, Run: func(ctx context.Context, c command.Call) error {
		if len(c.Args) > 0 && c.Args[0] == "help" {
			fmt.Fprint(c.Out, usage)
			return nil
		}
		c.Args = append([]string{name}, c.Args...)
		return run(ctx, c, usage, do)
	}}
}

func run(ctx context.Context, c command.Call, usage string, do subcommand) error {
	err := call(ctx, c, do)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(c.Out, usage)
		return nil
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == undefinedTable {
		return fmt.Errorf("%w: is DATABASE_URL of the service's own role, and migrated?", err)
	}
	return err
}

func call(ctx context.Context, c command.Call, do subcommand) (err error) {
	s := &invocation{
		Call: c, exact: c.Out, env: command.NewEnvironment(c.Getenv), flags: flag.NewFlagSet(c.Args[0], flag.ContinueOnError),
	}
	s.Out = printable{c.Out}
	s.flags.SetOutput(io.Discard) // command prints the error
	s.flags.BoolVar(&s.json, "json", false, "")
	defer func() {
		for _, end := range slices.Backward(s.ends) {
			err = errors.Join(err, end())
		}
	}()
	return do(ctx, s)
}

// undefinedTable is the SQLSTATE for a table that is not on the role's
// search_path.
const undefinedTable = "42P01"

// printable replaces control characters, so that the content of a message
// cannot send escape sequences to the operator's terminal.
type printable struct{ io.Writer }

func (p printable) Write(text []byte) (int, error) {
	_, err := io.WriteString(p.Writer, strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, string(text)))
	return len(text), err
}

// unchanged is printed after a dry run.
const unchanged = "Nothing was changed. Add --yes to do it.\n"

// print writes v as JSON with --json, else text into columns.
func (s *invocation) print(v any, text func(w io.Writer)) error {
	if s.json {
		return json.NewEncoder(s.exact).Encode(v)
	}
	w := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	text(w)
	return w.Flush()
}

// oneLine makes text fit a table: without line breaks, and of limited length.
func oneLine(text string) string {
	const longest = 100
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return string(runes)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func printActions(w io.Writer, actions []audit.Entry) {
	for _, a := range actions {
		fmt.Fprintf(w, "%s\t%s by %s (role %s): %s\n", stamp(a.At), a.Action, a.By, a.DatabaseRole, oneLine(cmp.Or(a.Why, "no reason given")))
	}
}
