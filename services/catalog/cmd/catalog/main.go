// Command catalog is the read model of videos; see package catalog.
package main

import (
	"context"
	"log/slog"
	"net"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/env"
	"example.com/lockstep/internal/operator"
	"example.com/lockstep/migrations"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/services/catalog"
)

const environment = `  LISTEN_DATABASE_URL    the same database past a transaction pooler; without
                         one that can LISTEN, waiting reads poll
  GOOGLE_CLOUD_PROJECT   project of the subscriptions video.events.catalog and
                         engagement.events.catalog
  VIDEO_SERVICE_ADDR     gRPC of the service that owns videos, host:port; on
                         port 443 with TLS and an ID token of Google's
  PUBSUB_ENDPOINT        regional endpoint of Pub/Sub, host:port
  PUBSUB_EMULATOR_HOST   emulator in place of Pub/Sub, host:port`

var deadLetters = operator.DeadLetters{
	Subscriptions: []string{catalog.Subscription, catalog.EngagementSubscription}, OwnerVariable: "VIDEO_SERVICE_ADDR",
	Handler: func(db *pgxpool.Pool, owner *grpc.ClientConn) inbox.Handler {
		return catalog.NewProjector(db, owner, catalog.NewWaiters(db, "", slog.Default()), slog.Default()).Handler()
	},
}

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
		Tools: []command.Tool{deadLetters.Tool()},
	}
}
