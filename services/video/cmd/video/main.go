// Command video is the service that owns videos; see package video.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
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
	"example.com/lockstep/services/video"
)

const usage = `video owns videos: REST and gRPC on one port, events through Pub/Sub.

usage: video [command]

commands:
  serve     serve until SIGTERM or SIGINT (the default)
  migrate   bring the schema "video" up to date
  help      print this

environment of serve:
  DATABASE_URL           Postgres, as the role video_service; behind a
                         transaction pooler add ?default_query_exec_mode=exec
  GOOGLE_CLOUD_PROJECT   project of the topics video.events, engagement.events
  PORT                   REST and gRPC without TLS (8080)
  PUBSUB_ENDPOINT        regional endpoint of Pub/Sub, host:port
  PUBSUB_EMULATOR_HOST   emulator in place of Pub/Sub, host:port
  LOG_LEVEL              debug, info, warn or error (info)
  OTEL_*                 the standard variables of OpenTelemetry

environment of migrate:
  DATABASE_URL           Postgres, as an administrator

exit codes: 0 done, 1 failed, 2 wrong usage
`

// flushTimeout is what the drain leaves of the 10 seconds for the last traces.
const flushTimeout = time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	command, err := parse(args)
	action, known := map[string]func(context.Context, func(string) string, io.Writer) error{
		"serve": serve, "migrate": migrate,
	}[command]
	switch {
	case errors.Is(err, flag.ErrHelp) || command == "help":
		fmt.Fprint(stdout, usage)
		return 0
	case err == nil && !known:
		err = fmt.Errorf("unknown command %q", command)
	}
	if err != nil {
		fmt.Fprintf(stderr, "video: %v\nvideo help lists the commands\n", err)
		return 2
	}
	if err := action(ctx, getenv, stdout); err != nil {
		fmt.Fprintf(stderr, "video: %v\n", err)
		return 1
	}
	return 0
}

// parse knows no flag but --help.
func parse(args []string) (command string, err error) {
	command = "serve"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		command, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run prints the error
	if err = flags.Parse(args); err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return command, err
}

func serve(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	cfg, err := video.ConfigFromEnv(getenv)
	if err != nil {
		return err
	}
	log := telemetry.Logger(stdout, cfg.LogLevel, "video", cfg.Project)
	flush, err := telemetry.Setup(ctx, "video")
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(cfg.Port)))
	if err != nil {
		return err
	}
	err = video.Serve(ctx, cfg, lis, log)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if err := flush(ctx); err != nil {
		log.WarnContext(ctx, "last telemetry not sent", "error", err)
	}
	return err
}

func migrate(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	r := env.New(getenv)
	url := r.RequiredURL("DATABASE_URL")
	if err := r.Err(); err != nil {
		return err
	}
	return migrations.Up(ctx, url, migrations.Video, telemetry.Logger(stdout, slog.LevelInfo, "video", ""))
}
