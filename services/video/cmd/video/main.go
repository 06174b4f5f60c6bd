// Command video is the service that owns videos; see package video.
package main

import (
	"context"
	"log/slog"
	"net"
	"os"

	"example.com/lockstep/internal/command"
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

func main() { os.Exit(service().Main()) }

func service() command.Service {
	return command.Service{Name: "video", Usage: usage, Schema: migrations.Video, Configure: configure}
}

func configure(getenv func(string) string) (command.Process, error) {
	cfg, err := video.ConfigFromEnv(getenv)
	return command.Process{
		Port: cfg.Port, Project: cfg.Project, LogLevel: cfg.LogLevel,
		Serve: func(ctx context.Context, lis net.Listener, log *slog.Logger) error {
			return video.Serve(ctx, cfg, lis, log)
		},
	}, err
}
