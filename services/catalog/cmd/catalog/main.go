// Command catalog is the read model of videos; see package catalog.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/lockstep/internal/env"
	"example.com/lockstep/internal/telemetry"
	"example.com/lockstep/migrations"
	"example.com/lockstep/services/catalog"
)

const usage = `catalog is a read model of videos, as fresh as a reader asks: REST and gRPC on one port.

usage: catalog [command]

commands:
  serve     serve until SIGTERM or SIGINT (the default)
  migrate   bring the schema "catalog" up to date and exit
  help      print this

environment of serve:
  DATABASE_URL           Postgres, as the role catalog_service; behind a
                         transaction pooler add ?default_query_exec_mode=exec
  GOOGLE_CLOUD_PROJECT   the project of the subscription video.events.catalog
  VIDEO_SERVICE_ADDR     gRPC of the service that owns videos, host:port
  PORT                   REST and gRPC without TLS (8080)
  PUBSUB_ENDPOINT        a regional endpoint, host:port (the global one)
  PUBSUB_EMULATOR_HOST   an emulator in place of Pub/Sub, host:port
  LOG_LEVEL              debug, info, warn or error (info)
  OTEL_*                 the standard variables of OpenTelemetry

environment of migrate:
  DATABASE_URL           Postgres, as an administrator

exit codes: 0 done, 1 failed, 2 wrong usage
`

const (
	exitDone = iota
	exitFailed
	exitUsage
)

// flushTimeout is for the last traces: the drain before it leaves about this
// much of the 10 seconds.
const flushTimeout = time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)) //nolint:gocritic // the process ends, and with it the signals
}

func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	command := "serve"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		command, args = args[0], args[1:]
	}
	actions := map[string]func(context.Context, func(string) string, io.Writer) error{
		"serve": serve, "migrate": migrate, "help": help,
	}
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	switch action, known := actions[command]; {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return exitDone
	case !known:
		err = errors.New("unknown command")
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case err == nil:
		if err := action(ctx, getenv, stdout); err != nil {
			fmt.Fprintf(stderr, "catalog %s: %v\n", command, err)
			return exitFailed
		}
		return exitDone
	}
	fmt.Fprintf(stderr, "catalog %s: %v; see catalog help\n", command, err)
	return exitUsage
}

func serve(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	cfg, err := catalog.ConfigFromEnv(getenv)
	if err != nil {
		return err
	}
	log := telemetry.Logger(stdout, cfg.LogLevel, "catalog", cfg.Project)
	flush, err := telemetry.Setup(ctx, "catalog")
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(cfg.Port)))
	if err != nil {
		return err
	}
	err = catalog.Serve(ctx, cfg, lis, log)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if flushErr := flush(ctx); flushErr != nil {
		log.WarnContext(ctx, "last telemetry not sent", "error", flushErr)
	}
	return err
}

func migrate(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	r := env.New(getenv)
	url := r.RequiredURL("DATABASE_URL")
	level := r.Level("LOG_LEVEL", 0)
	if err := r.Err(); err != nil {
		return err
	}
	return migrations.Up(ctx, url, migrations.Catalog, telemetry.Logger(stdout, level, "catalog", ""))
}

func help(_ context.Context, _ func(string) string, stdout io.Writer) error {
	_, err := io.WriteString(stdout, usage)
	return err
}
