// Command dev is the launcher of `make run`. It starts the services and their backing servers on
// one machine, shows a walk-through, and serves until Ctrl-C.
//
//	listeners ─▶ issuer ─▶ Postgres ─▶ Pub/Sub ─▶ migrations ─▶ video ─▶ catalog ─▶ the walk-through
//
// The walk-through makes three writes to one video. It reads each write back from catalog with the
// consistency token of the write. It acts as a user with a token of the issuer. The issuer and the
// local broker run in this process. Postgres, the services and the official Pub/Sub emulator are
// child processes. They end with this process. If this process is killed, the services end, too; the
// others do so on Linux only.
// Each service is another process of this program, started with the command part.
//
// Exit codes: 0 done (also after Ctrl-C while serving), 1 failed, 2 wrong usage.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"example.com/lockstep/internal/command"
)

//go:embed usage.txt
var usage string

const (
	// emulatorHost is the environment variable of Google's client libraries.
	emulatorHost = "PUBSUB_EMULATOR_HOST"
	// withoutAuth is the default of --no-auth. A fork that has no users sets withoutAuth to true.
	withoutAuth = false
	// defaultProject exists on emulators only.
	defaultProject = "lockstep-local"
)

func main() {
	// The reader of the output may have ended: in `make run | tee log`, Ctrl-C ends tee first. The next line
	// would then end this program by SIGPIPE before it has stopped its parts. With Notify, such a line is an
	// error instead. Ignore would have the same effect here, but the children would also ignore SIGPIPE.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), ends()...)
	// After the first signal, a second one ends the process at once, except SIGHUP. When a terminal closes,
	// the system and the shell each send a SIGHUP.
	context.AfterFunc(ctx, func() {
		signal.Ignore(syscall.SIGHUP)
		stop()
	})
	os.Exit(run(ctx, command.Call{Args: os.Args[1:], Getenv: os.Getenv, Out: os.Stdout, Err: os.Stderr}))
}

// ends returns the signals at which this program stops its children and ends. One of them is SIGHUP,
// the signal of a terminal window that is closed, unless nohup makes this program ignore it. Only on
// Linux would the children end without this program.
func ends() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

func run(ctx context.Context, c command.Call) int {
	err := dispatch(ctx, c)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(c.Out, usage)
	}
	if err != nil {
		err = oneLineError{err}
	}
	return command.Exit(c.Err, "dev", " (dev --help shows the usage)", err)
}

// oneLineError is an error whose text is printed on one line. Drivers spread an error over several
// lines.
type oneLineError struct{ error }

func (e oneLineError) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }

func (e oneLineError) Unwrap() error { return e.error }

func dispatch(ctx context.Context, c command.Call) error {
	if len(c.Args) == 0 || strings.HasPrefix(c.Args[0], "-") {
		return up(ctx, c)
	}
	name := c.Args[0]
	c.Args = c.Args[1:]
	switch name {
	case "token":
		return token(ctx, c)
	case "provision":
		return provision(ctx, c)
	case "pubsub":
		return pubsub(ctx, c)
	case part:
		return runPart(ctx, c)
	case "help":
		return flag.ErrHelp
	default:
		return command.Usagef("unknown command %q", name)
	}
}

func up(ctx context.Context, c command.Call) error {
	p := pair{stdout: c.Out, stderr: c.Err}
	flags := flag.NewFlagSet("dev", flag.ContinueOnError)
	flags.BoolVar(&p.once, "once", false, "")
	flags.BoolVar(&p.json, "json", false, "")
	flags.StringVar(&p.pubsub, "pubsub", "auto", "")
	flags.BoolVar(&p.noAuth, "no-auth", withoutAuth, "")
	flags.Var(&p.origins, corsOrigin, "")
	if err := command.ParseFlags(flags, c.Args); err != nil {
		return err
	}
	if !slices.Contains([]string{"auto", "local", "emulator"}, p.pubsub) {
		return command.Usagef("--pubsub %q: want auto, local or emulator", p.pubsub)
	}
	vars := command.NewEnvironment(c.Getenv)
	p.databaseURL = vars.URL("DATABASE_URL")
	p.emulatorHost = vars.HostPort(emulatorHost, "")
	p.project = vars.String("GOOGLE_CLOUD_PROJECT", defaultProject)
	p.level = vars.Level("LOG_LEVEL", defaultLevel)
	if err := vars.Err(); err != nil {
		return err
	}
	return p.run(ctx)
}
