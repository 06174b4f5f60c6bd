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
// The packages in this list do the work. This package parses, asks and prints. The folder usage
// has the help texts. Skip, allow, purge, bump, redrive, discard, reset, reconcile --repair, rebuild
// and erase cannot be undone. Therefore they only show their plan unless --yes is given. With --json
// a command prints exactly one JSON object to stdout. All other output goes to stderr.
package operator

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing/backfill"
	"example.com/lockstep/pkg/eventing/checkpoint"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/operator/deadletter"
	"example.com/lockstep/pkg/eventing/operator/erasure"
	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// Owner is a service that publishes events.
type Owner struct {
	// Topics maps the types of its aggregates to full topic names, as in the command serve.
	Topics func(project string) map[string]string
	// Types are the types of its aggregates.
	Types []string
	// Rows are the tables of its aggregates, by type.
	Rows    func(db *pgxpool.Pool) map[string]*reconcile.Table
	Erasure func(db *pgxpool.Pool, o erasure.Options) erasure.Eraser
}

// Tools are the operator's commands of the service.
func (o Owner) Tools() []command.Tool {
	return []command.Tool{
		tool("outbox", "look after events that are not published: `outbox help`", helpOf("outbox"), map[string]subcommand{
			"status": status, "list": list, "show": show, "retry": retry, "skip": skip, "allow": o.allow, "purge": purge,
			"drain": o.drain,
		}),
		tool("events", aboutEvents, helpOf("events_owner"), map[string]subcommand{"show": show}),
		tool("epoch", "begin an epoch after a restore of the database: `epoch help`", helpOf("epoch"), map[string]subcommand{
			"show": showEpochs, "bump": bumpEpoch,
		}),
		single("erase", aboutErase, helpOf("erase_owner"), o.erase),
	}
}

// ReadModel is a service with a read model. The service fills the read model from an owner's
// events.
type ReadModel struct {
	// Subscriptions are the subscriptions that bring the events.
	Subscriptions []string
	// OwnerVariable is the environment variable with the gRPC address of the events' owner.
	OwnerVariable string
	// Types are the types of the aggregates in the read model.
	Types []string
	// Schema is the schema of the read model's tables.
	Schema string
	// Offsets names the checkpoints of the consumer that has them.
	Offsets checkpoint.Names
	// Positions returns the positions of the wanted aggregates that the read model has.
	Positions func(ctx context.Context, db *pgxpool.Pool, wanted []consistency.Position) ([]consistency.Position, error)
	// Projections returns the projections in db. owner is the connection to the owner of their
	// rows. It is nil for a subcommand that does not ask the owner.
	Projections func(db *pgxpool.Pool, owner *grpc.ClientConn) Projections
	// Rebuild returns the rebuild in db. owner is as in Projections.
	Rebuild func(db *pgxpool.Pool, owner *grpc.ClientConn) *rebuild.Rebuild
	Erasure func(db *pgxpool.Pool, owner *grpc.ClientConn, letters *deadletter.Batch, o erasure.Options) erasure.Eraser
}

// Projections are the parts of a read model.
type Projections interface {
	// Handler returns the handler of the consumers.
	Handler() inbox.Handler
	// Checks compare each part with its owner.
	Checks() []reconcile.Checker
	// Fillers fill each part with the owner's rows.
	Fillers() []backfill.Filler
}

// Tools are the operator's commands of the service.
func (m ReadModel) Tools() []command.Tool {
	return []command.Tool{
		tool("dlq", "look after dead letters: `dlq help`", helpOf("dlq"), map[string]subcommand{
			"list": m.listDeadLetters, "show": m.showDeadLetter, "redrive": m.redrive, "discard": m.discard,
		}),
		tool("offset", "the consumer's position, and replays: `offset help`", helpOf("offset"), map[string]subcommand{
			"show": m.showOffset, "reset": m.resetOffset,
		}),
		single("reconcile", "compare the read model with its owner: `reconcile help`", helpOf("reconcile"), m.reconcile),
		single("backfill", "build the read model from its owner's rows: `backfill help`", helpOf("backfill"), m.backfill),
		tool("rebuild", "build the read model again and switch: `rebuild help`", helpOf("rebuild"), map[string]subcommand{
			"run": asOwner(m.runRebuild), "status": asOwner(m.rebuildStatus), "rollback": asOwner(m.rollback), "finish": asOwner(m.finish),
		}),
		single("erase", aboutErase, helpOf("erase_reader"), m.erase),
		tool("events", aboutEvents, helpOf("events_reader"), map[string]subcommand{"show": m.showReceipts}),
	}
}

//go:embed usage
var usages embed.FS

// helpOf returns the help of a tool, as `TOOL help` prints it. name is that of its file.
func helpOf(name string) string {
	text, _ := usages.ReadFile("usage/" + name + ".txt") // TestHelpNeedsNoEnvironment finds a wrong name
	return string(text)
}

// A subcommand is one command of a tool.
type subcommand func(ctx context.Context, s *invocation) error

// tool returns a tool with these subcommands. usage is its help text.
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

// single returns a tool with one command, which has the tool's name.
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

// undefinedTable is the SQLSTATE of a table that is not on the role's search_path.
// insufficientPrivilege is the SQLSTATE of a role that is not the table's owner.
const undefinedTable, insufficientPrivilege = "42P01", "42501"

func run(ctx context.Context, c command.Call, usage string, do subcommand) (err error) {
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
	err = do(ctx, s)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(c.Out, usage)
		return nil
	}
	return hinted(err, undefinedTable, "is DATABASE_URL of the service's own role, and migrated?")
}

// hinted adds a hint for the operator to an error of Postgres that has the given SQLSTATE.
func hinted(err error, sqlstate, hint string) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == sqlstate {
		return fmt.Errorf("%w: %s", err, hint)
	}
	return err
}
