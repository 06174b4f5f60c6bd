// Command catalog is the read model of videos; see package catalog.
package main

import (
	"context"
	"log/slog"
	"net"
	"os"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/env"
	"example.com/lockstep/migrations"
	"example.com/lockstep/services/catalog"
)

const environment = `  GOOGLE_CLOUD_PROJECT   the project of the subscription video.events.catalog
  VIDEO_SERVICE_ADDR     gRPC of the service that owns videos, host:port
  PUBSUB_ENDPOINT        a regional endpoint, host:port (the global one)
  PUBSUB_EMULATOR_HOST   an emulator in place of Pub/Sub, host:port`

func main() { os.Exit(service().Main()) }

func service() command.Service {
	return command.Service{
		Name: migrations.Catalog, About: "is a read model of videos, as fresh as a reader asks: REST and gRPC on one port.",
		Environment: environment,
		Configure: func(r *env.Reader) command.Process {
			cfg := catalog.ReadConfig(r)
			return command.Process{Project: cfg.Project, Serve: func(ctx context.Context, lis net.Listener, log *slog.Logger) error {
				return catalog.Serve(ctx, cfg, lis, log)
			}}
		},
	}
}
