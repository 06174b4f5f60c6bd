// Package operator is the command line for a person who looks after blocked
// events: `video outbox` and `catalog dlq`.
//
//	backlog      events that video has not published     video.outbox
//	deadletter   events that catalog could not process   catalog.inbox, <subscription>.dlq
//	audit        the actions: person, time and reason    operator_actions
//
// Those three packages do the work; this one parses, asks and prints. Skip,
// purge, redrive and discard, which cannot be undone, only show their plan unless
// --yes is given or a person at the terminal types a reason. With --json a
// command prints exactly one JSON object to stdout. All other output goes to
// stderr.
package operator

import (
	"bufio"
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
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/database"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

// A subcommand is one command of a tool.
type subcommand func(ctx context.Context, s *invocation) error

// dispatch runs the subcommand that c names. Help prints usage.
func dispatch(ctx context.Context, c command.Call, usage string, subcommands map[string]subcommand) error {
	names := strings.Join(slices.Sorted(maps.Keys(subcommands)), ", ")
	if len(c.Args) == 0 {
		return command.Usagef("a command is missing: one of %s", names)
	}
	name := c.Args[0]
	do, ok := subcommands[name]
	switch {
	case slices.Contains([]string{"help", "-h", "-help", "--help"}, name):
		fmt.Fprint(c.Out, usage)
		return nil
	case !ok:
		return command.Usagef("unknown command %q: want one of %s", name, names)
	}
	exact := c.Out
	c.Out = printable{c.Out}
	s := &invocation{Call: c, exact: exact, flags: flag.NewFlagSet(name, flag.ContinueOnError)}
	s.flags.SetOutput(io.Discard) // command prints the error
	s.flags.BoolVar(&s.json, "json", false, "")
	err := do(ctx, s)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(c.Out, usage)
		return nil
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == undefinedTable {
		return fmt.Errorf("%w: is DATABASE_URL of the service's own role, and migrated?", err)
	}
	return err
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

// invocation is one run of a subcommand.
type invocation struct {
	command.Call
	exact io.Writer // Out for programs, unmodified
	flags *flag.FlagSet
	json  bool
	yes   bool
	actor audit.Actor
	// ids are the arguments that are not flags.
	ids []string
}

// auditFlags declares the flags of a subcommand that changes something.
func (s *invocation) auditFlags() {
	s.flags.StringVar(&s.actor.By, "by", s.Getenv("USER"), "")
	s.flags.StringVar(&s.actor.Why, "why", "", "")
}

// confirmFlags declares the flags of a subcommand that acts only after confirmation.
func (s *invocation) confirmFlags() {
	s.auditFlags()
	s.flags.BoolVar(&s.yes, "yes", false, "")
}

// parse accepts flags and ids in any order.
func (s *invocation) parse() error {
	for args := s.Args[1:]; ; {
		switch err := s.flags.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			return err
		case err != nil:
			return command.Usagef("%w", err)
		case s.flags.NArg() == 0:
			return s.signed()
		}
		s.ids = append(s.ids, s.flags.Arg(0))
		args = s.flags.Args()[1:]
	}
}

// signed requires a name for the audit table from a subcommand that may change
// something. A job of Cloud Run has no USER, but the cloud's own audit log
// names the starter of its execution. So the execution's name is kept with the
// person's.
func (s *invocation) signed() error {
	if s.flags.Lookup("by") == nil || (s.flags.Lookup("yes") != nil && !s.yes && s.In == nil) {
		return nil
	}
	if strings.TrimSpace(s.actor.By) == "" {
		return command.Usagef("--by NAME is missing, and so is USER: who does this?")
	}
	if execution := s.Getenv("CLOUD_RUN_EXECUTION"); execution != "" {
		s.actor.By += " in " + execution
	}
	return nil
}

// confirmed reports whether to go on. The caller has shown the plan before. A
// person at a terminal goes on by typing the reason.
func (s *invocation) confirmed() bool {
	if s.yes || s.json || s.In == nil {
		return s.yes
	}
	fmt.Fprint(s.Err, "Why? (kept in the audit table; nothing said, nothing done) ")
	line, _ := bufio.NewReader(s.In).ReadString('\n')
	if line = strings.TrimSpace(line); line != "" {
		s.actor.Why, s.yes = line, true
	}
	return s.yes
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

// parseIDs is parse for a subcommand that requires a certain number of ids.
func (s *invocation) parseIDs(want int) error {
	if err := s.parse(); err != nil {
		return err
	}
	switch {
	case len(s.ids) > want:
		return command.Usagef("unexpected argument %q", s.ids[want])
	case len(s.ids) < want:
		return command.Usagef("the id of an event is missing")
	}
	return nil
}

// open returns the pool of DATABASE_URL once the database answers. The caller
// closes it.
func (s *invocation) open(ctx context.Context, r *command.Environment) (*pgxpool.Pool, error) {
	url := r.RequiredURL("DATABASE_URL")
	if err := r.Err(); err != nil {
		return nil, err
	}
	if err := database.Await(ctx, url, func(err error) { fmt.Fprintln(s.Err, "waiting for the database:", err) }); err != nil {
		return nil, err
	}
	return database.Open(ctx, url)
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
