// Command catalog is the read model of videos; see package catalog.
package main

import (
	"context"
	"log/slog"
	"net"
	"os"

	"example.com/lockstep/internal/command"
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

func main() { os.Exit(service().Main()) }

func service() command.Service {
	return command.Service{Name: "catalog", Usage: usage, Schema: migrations.Catalog, Configure: configure}
}

func configure(getenv func(string) string) (command.Process, error) {
	cfg, err := catalog.ConfigFromEnv(getenv)
	return command.Process{
		Port: cfg.Port, Project: cfg.Project, LogLevel: cfg.LogLevel,
		Serve: func(ctx context.Context, lis net.Listener, log *slog.Logger) error {
			return catalog.Serve(ctx, cfg, lis, log)
		},
	}, err
}
