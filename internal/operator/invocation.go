package operator

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/connect"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

// invocation is one run of a subcommand.
type invocation struct {
	command.Call
	exact io.Writer // Out for programs, unmodified
	env   *command.Environment
	flags *flag.FlagSet
	json  bool
	yes   bool
	actor audit.Actor
	// all, reason and aggregate are the flags that select without ids.
	all               bool
	reason, aggregate string
	// subscription is the flag of dlq; empty for all subscriptions.
	subscription string
	// ids are the arguments that are not flags.
	ids []string
	// db is set by open.
	db   *pgxpool.Pool
	ends []func() error
}

// auditFlags declares the flags of a subcommand that changes something. The person is who
// is logged in, also through sudo. In a job nobody is: a USER there is the image's.
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

// parse accepts flags and ids in any order.
func (s *invocation) parse() error {
	if err := s.parseFlags(); err != nil {
		return err
	}
	return s.signed()
}

// parseFlags is parse without the name for the audit table.
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

// signed requires a name and a reason for the audit table from a subcommand that may
// change something; a person at the terminal may type the reason later. A job of Cloud Run has no USER, but the cloud's own audit log
// names the starter of its execution. So the execution's name is kept with the
// person's.
func (s *invocation) signed() error {
	if s.flags.Lookup("by") == nil || (s.flags.Lookup("yes") != nil && !s.yes && s.In == nil) {
		return nil
	}
	if strings.TrimSpace(s.actor.By) == "" {
		return command.Usagef("--by NAME is missing, and so is USER: who does this?")
	}
	if strings.TrimSpace(s.actor.Why) == "" && (s.yes || s.flags.Lookup("yes") == nil) {
		return command.Usagef("--why TEXT is missing: the audit table keeps the reason")
	}
	if execution := s.Getenv("CLOUD_RUN_EXECUTION"); execution != "" {
		s.actor.By += " in " + execution
	}
	return nil
}

// planf prints a line of the plan for a person; programs get it with the result.
func (s *invocation) planf(format string, args ...any) {
	if !s.json {
		fmt.Fprintf(s.Out, format+"\n", args...)
	}
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

// parseSelection is parse for a subcommand that takes ids, at most most, or
// --all, with a filter. The usage error calls the ids want.
func (s *invocation) parseSelection(want string, most int) error {
	s.flags.BoolVar(&s.all, "all", false, "")
	s.filterFlags()
	if err := s.parse(); err != nil {
		return err
	}
	switch {
	case s.all == (len(s.ids) > 0), len(s.ids) > most:
		return command.Usagef("want %s, or --all", want)
	case !s.all && s.reason+s.aggregate != "":
		return command.Usagef("--reason and --aggregate belong to --all")
	}
	return nil
}

// open sets db to the pool of DATABASE_URL once the database answers.
func (s *invocation) open(ctx context.Context) (err error) {
	url := s.env.RequiredURL("DATABASE_URL")
	if err := s.env.Err(); err != nil {
		return err
	}
	if err := connect.AwaitDatabase(ctx, url, func(err error) { fmt.Fprintln(s.Err, "waiting for the database:", err) }); err != nil {
		return err
	}
	if s.db, err = connect.OpenPool(ctx, url); err == nil {
		s.atEnd(func() error {
			s.db.Close()
			return nil
		})
	}
	return err
}

// openBoth is open, and returns a client of Pub/Sub.
func (s *invocation) openBoth(ctx context.Context) (*pubsub.Client, error) {
	project, endpoint := s.env.Required("GOOGLE_CLOUD_PROJECT"), s.env.HostPort("PUBSUB_ENDPOINT", "")
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	client, err := connect.NewPubSub(ctx, project, connect.PubSubOptions{Endpoint: endpoint})
	if err == nil {
		s.atEnd(client.Close)
	}
	return client, err
}

// openOwner is open, and returns a connection to the owner, whose gRPC address is in the
// environment variable.
func (s *invocation) openOwner(ctx context.Context, variable string) (*grpc.ClientConn, error) {
	s.env.Required(variable)
	addr := s.env.HostPort(variable, "")
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	owner, err := connect.Dial(addr)
	if err == nil {
		s.atEnd(owner.Close)
	}
	return owner, err
}

// atEnd has end called when the subcommand has returned, the last one first.
func (s *invocation) atEnd(end func() error) { s.ends = append(s.ends, end) }
