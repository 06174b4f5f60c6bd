// Command video is the service that owns videos; see package video.
package main

import (
	"context"
	"log/slog"
	"net"
	"os"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/env"
	"example.com/lockstep/internal/operator"
	"example.com/lockstep/migrations"
	"example.com/lockstep/services/video"
)

const environment = `  GOOGLE_CLOUD_PROJECT   project of the topics video.events, engagement.events
  PUBSUB_ENDPOINT        regional endpoint of Pub/Sub, host:port
  PUBSUB_EMULATOR_HOST   emulator in place of Pub/Sub, host:port`

func main() { os.Exit(service().Main()) }

func service() command.Service {
	return command.Service{
		Name: migrations.Video, About: "owns videos: REST and gRPC on one port, events through Pub/Sub.",
		Environment: environment,
		Configure: func(r *env.Reader) command.Process {
			cfg := video.ReadConfig(r)
			return command.Process{Project: cfg.Project, Serve: func(ctx context.Context, lis net.Listener, log *slog.Logger) error {
				return video.Serve(ctx, cfg, lis, log)
			}}
		},
		Tools: []command.Tool{operator.Outbox(video.Topics)},
	}
}
