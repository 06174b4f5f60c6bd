package operator

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

type invocation struct {
	command.Call
	exact io.Writer // the original Out, which printable does not change, for JSON
	env   *command.Environment
	flags *flag.FlagSet
	json  bool
	yes   bool
	actor audit.Actor
	// all, reason and aggregate are the flags that select without ids.
	all               bool
	reason, aggregate string
	// subscription is the flag --subscription of dlq. Empty means all subscriptions.
	subscription string
	// ids are the arguments that are not flags.
	ids []string
	// db, pubsub and owner are set by connect, and ownerAddr with owner.
	db        *pgxpool.Pool
	pubsub    *pubsub.Client
	owner     *grpc.ClientConn
	ownerAddr string
	ends      []func() error
}

// auditFlags declares the flags of a subcommand that changes something. By default the person is
// the user who is logged in, also through sudo. In a job no user is logged in and USER is a user
// of the image, so there is no default.
func (s *invocation) auditFlags() {
	by := cmp.Or(s.Getenv("SUDO_USER"), s.Getenv("USER"))
	if s.Getenv("CLOUD_RUN_EXECUTION") != "" {
		by = ""
	}
	s.flags.StringVar(&s.actor.By, "by", by, "")
	s.flags.StringVar(&s.actor.Why, "why", "", "")
}

// confirmFlags declares the flags of a subcommand that acts only after confirmation.
func (s *invocation) confirmFlags() {
	s.auditFlags()
	s.flags.BoolVar(&s.yes, "yes", false, "")
}

// filterFlags declares the flags that select by reason and aggregate.
func (s *invocation) filterFlags() {
	s.flags.StringVar(&s.reason, "reason", "", "")
	s.flags.StringVar(&s.aggregate, "aggregate", "", "")
}

// parse parses a command line with flags and exactly as many ids as the parameter ids says, in any order.
func (s *invocation) parse(ids int) error {
	err := s.parseSigned()
	switch {
	case err != nil:
		return err
	case len(s.ids) > ids:
		return command.Usagef("unexpected argument %q", s.ids[ids])
	case len(s.ids) < ids:
		return command.Usagef("the id of an event is missing")
	}
	return nil
}

// parseSelection is parse for a subcommand that takes either ids, at most as many as the parameter
// most says, or --all with a filter. The parameter want is the text that names the ids in a usage
// error.
func (s *invocation) parseSelection(want string, most int) error {
	s.flags.BoolVar(&s.all, "all", false, "")
	s.filterFlags()
	err := s.parseSigned()
	switch {
	case err != nil:
		return err
	case s.all == (len(s.ids) > 0), len(s.ids) > most:
		return command.Usagef("want %s, or --all", want)
	case !s.all && s.reason+s.aggregate != "":
		return command.Usagef("--reason and --aggregate belong to --all")
	}
	return nil
}

func (s *invocation) parseSigned() error {
	if err := s.parseFlags(); err != nil {
		return err
	}
	return s.signed()
}

func (s *invocation) parseFlags() error {
	for args := s.Args[1:]; ; {
		switch err := s.flags.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			return err
		case err != nil:
			return command.Usagef("%w", err)
		case s.flags.NArg() == 0:
			return nil
		}
		s.ids = append(s.ids, s.flags.Arg(0))
		args = s.flags.Args()[1:]
	}
}

// signed requires a name and a reason for the audit table from a subcommand that changes something.
// No subcommand prompts, because pasted text could answer the prompt.
// A job of Cloud Run has no USER, but the cloud's own audit log names the person who started its
// execution. So signed keeps the name of the execution with the person's name.
func (s *invocation) signed() error {
	if s.flags.Lookup("by") == nil || (s.flags.Lookup("yes") != nil && !s.yes) {
		return nil
	}
	if strings.TrimSpace(s.actor.By) == "" {
		return command.Usagef("--by NAME is missing, and so is USER: who does this?")
	}
	if strings.TrimSpace(s.actor.Why) == "" {
		return command.Usagef("--why TEXT is missing: the audit table keeps the reason")
	}
	if execution := s.Getenv("CLOUD_RUN_EXECUTION"); execution != "" {
		s.actor.By += " in " + execution
	}
	return nil
}

func (s *invocation) oneEvent() (uuid.UUID, error) {
	if err := s.parse(1); err != nil {
		return uuid.Nil, err
	}
	return s.event()
}

func (s *invocation) event() (uuid.UUID, error) {
	id, err := uuid.Parse(s.ids[0])
	if err != nil {
		return uuid.Nil, command.Usagef("event id %q: %w", s.ids[0], err)
	}
	return id, nil
}

// ofType returns the elements of the type wanted, or all elements if wanted is empty. If there is
// none, the error lists the types.
func ofType[T interface{ Type() string }](all []T, wanted string) (chosen []T, err error) {
	var types []string
	for _, one := range all {
		types = append(types, one.Type())
		if wanted == "" || wanted == one.Type() {
			chosen = append(chosen, one)
		}
	}
	if len(chosen) == 0 {
		return nil, command.Usagef("--type %s: want one of %s", wanted, strings.Join(types, ", "))
	}
	return chosen, nil
}

// planf prints a line of the plan for a person. With --json it prints nothing, because the
// result has the plan.
func (s *invocation) planf(format string, args ...any) {
	if !s.json {
		fmt.Fprintf(s.Out, format+"\n", args...)
	}
}

// unchanged is printed after a dry run.
const unchanged = "Nothing was changed. Add --yes and --why TEXT to do it.\n"

// act calls do if --yes was given. dryRun points to a field of result. act sets this field to false
// if --yes was given, and to true otherwise. With --json it then prints the result.
// Otherwise it prints the text that do has returned, or says that nothing was changed.
func (s *invocation) act(result any, dryRun *bool, do func() (text string, err error)) (err error) {
	text := unchanged
	if *dryRun = !s.yes; !*dryRun {
		if text, err = do(); err != nil {
			return err
		}
	}
	return s.print(result, func(w io.Writer) { fmt.Fprint(w, text) })
}
