// Command video is the service that owns videos; see package video.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/canary"
	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/operator"
	"example.com/lockstep/internal/topics"
	"example.com/lockstep/migrations"
	"example.com/lockstep/pkg/eventing/operator/erasure"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/services/video"
)

var environment = `  LISTEN_DATABASE_URL    the same database past a transaction pooler; without
                         it an event that its own instance does not take
                         may leave 5 s later
  GOOGLE_CLOUD_PROJECT   project of the topics ` + strings.Join(topics.Names(), ", ") + `
  PUBSUB_ENDPOINT        regional endpoint of Pub/Sub, host:port
  PUBSUB_EMULATOR_HOST   emulator in place of Pub/Sub, host:port
` + auth.Usage

func main() { os.Exit(service().Main()) }

// retention is the default of -outbox-retention. Pub/Sub keeps messages for the same time by
// default.
const retention = 7 * 24 * time.Hour

var owner = operator.Owner{
	Topics: video.Topics, Types: video.Types, Rows: video.Rows,
	Erasure: func(db *pgxpool.Pool, o erasure.Options) erasure.Eraser { return video.NewErasure(db, o) },
}

// canaryInterval is the value of the flag -canary-interval. It is 0, or from one second to canary.MaxSeconds.
type canaryInterval time.Duration

func (c *canaryInterval) String() string { return time.Duration(*c).String() }

func (c *canaryInterval) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err == nil && d != 0 && (d < time.Second || d > canary.MaxSeconds*time.Second) {
		err = fmt.Errorf("0, or 1s to %ds", canary.MaxSeconds)
	}
	*c = canaryInterval(d)
	return err
}

func service() command.Service {
	var cfg video.Config
	return command.Service{
		Name: migrations.Video, About: "owns videos: REST and gRPC on one port, events through Pub/Sub.",
		Environment: environment,
		Flags: func(f *flag.FlagSet, local bool) {
			command.IntervalFlag(f, &cfg.Retention, "outbox-retention", retention,
				"the `duration` for which published events stay in the outbox; 0 is for ever")
			f.IntVar(&cfg.TenantRate, "tenant-rate", outbox.DefaultTenantRate,
				"events a second of each tenant that is above this rate while others are active; 0 is the default, negative: no limit")
			f.Var((*canaryInterval)(&cfg.CanaryInterval), "canary-interval", "how often a synthetic video gets a version, "+
				"with which catalog measures the time from commit to visible: 1s to 1m; 0 is never")
			cfg.Flags(f, local)
		},
		Configure: func(r *command.Environment) command.Process {
			cfg.ReadEnvironment(r)
			return command.Process{Project: cfg.Project, Serve: func(ctx context.Context, lis, admin net.Listener, log *slog.Logger) error {
				cfg.Admin = admin
				return video.Serve(ctx, cfg, lis, log)
			}}
		},
		Tools: owner.Tools(),
	}
}
