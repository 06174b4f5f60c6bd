package video

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/canary"
	"example.com/lockstep/internal/connect"
	"example.com/lockstep/internal/idempotency"
	"example.com/lockstep/internal/serve"
	"example.com/lockstep/internal/topics"
	"example.com/lockstep/migrations"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/reconcile"
	"example.com/lockstep/services/video/aggregate"
	"example.com/lockstep/services/video/engagement"
)

// Config is the configuration of a process that serves video.
type Config struct {
	serve.Config

	// Retention is how long published events are kept; 0 is for ever.
	Retention time.Duration
	// TenantRate is the field TenantRate of outbox.Options.
	TenantRate int
	// CanaryInterval is the time between two versions of the synthetic video, up to a minute. With
	// 0, the process writes no versions.
	CanaryInterval time.Duration
}

// Topics are the full names of the topics in project, by aggregate type.
func Topics(project string) map[string]string {
	names := map[string]string{}
	for _, t := range topics.All {
		names[t.Aggregate] = topics.InProject(project, t.Name)
	}
	return names
}

// Serve runs the service on lis until ctx is cancelled, and closes lis. Then it drains within 10
// seconds: first the API, then the relay, then the parts that both use. Serve also starts if the
// database is away or not migrated. It is then unready until the database is usable. If one part
// fails, all parts end, and Serve returns the error of that part.
func Serve(ctx context.Context, cfg Config, lis net.Listener, log *slog.Logger) error {
	defer lis.Close() // in case Serve returns before the server owns lis
	callers, err := auth.New(ctx, cfg.Auth, log)
	if err != nil {
		return err
	}
	pools, err := connect.OpenPools(ctx, cfg.DatabaseURL)
	if err != nil {
		return err
	}
	defer pools.Close()
	where := connect.PubSubOptions{Endpoint: cfg.PubSubEndpoint}
	client, err := connect.NewPubSub(ctx, cfg.Project, where)
	if err != nil {
		return err
	}
	defer client.Close()
	where.WarnOfOrder(ctx, log)

	health := serve.NewHealth(log, serve.Check{Name: "database", Run: func(ctx context.Context) error {
		return migrations.Check(ctx, pools.Probe, migrations.Video)
	}})
	health.Admin = cfg.Admin
	relay := outbox.NewRelay(pools.Loops, client, Topics(cfg.Project), log, health.Register("relay"),
		outbox.Options{Retention: cfg.Retention, ListenURL: cfg.ListenURL, TenantRate: cfg.TenantRate, Canary: canary.Tenant})
	health.ShowFailures("relay", relay.FailuresInARow)
	sweeping := health.Register("idempotency keys")
	guard := serve.NewGuard(access, callers, cfg.Limits)
	router, rpc := serve.NewRouter(log, health, guard), serve.NewGRPC(log, guard)
	newServices(pools.Requests, relay).register(router, rpc, log)
	if cfg.Reflection {
		rpc.Reflect()
	}
	server := serve.New(log, router, rpc, health)

	log.InfoContext(ctx, "video serves", "addr", lis.Addr().String(), "project", cfg.Project)
	loops := []func(context.Context) error{callers.Run, relay.Run, func(ctx context.Context) error {
		return idempotency.Sweep(ctx, pools.Loops, log, sweeping)
	}}
	if cfg.CanaryInterval > 0 {
		canaries := newCanaryWriter(aggregate.NewWriter(pools.Loops, relay), cfg.CanaryInterval, log)
		alive := health.Register("canary")
		loops = append(loops, func(ctx context.Context) error { return canaries.run(ctx, alive) })
	}
	return server.Run(ctx, lis, loops...)
}

// services are the aggregates of the process. They share one writer.
type services struct {
	videos      *Service
	engagements *engagement.Service
	comparable  map[string]*reconcile.Table // by aggregate type
}

// newServices returns services that hand their events over to relay. For relay see
// [aggregate.NewWriter].
func newServices(db *pgxpool.Pool, relay aggregate.Relay) services {
	writer := aggregate.NewWriter(db, relay)
	return services{
		videos:      NewService(db, writer),
		engagements: engagement.NewService(db, writer),
		comparable: map[string]*reconcile.Table{
			aggregateType:  newTable(db),
			engagementType: engagement.NewTable(db),
		},
	}
}

// Rows returns the tables of the service's aggregates in db, by type.
func Rows(db *pgxpool.Pool) map[string]*reconcile.Table { return newServices(db, nil).comparable }

// register adds the routes and the gRPC services of all aggregates.
func (s services) register(router chi.Router, rpc grpc.ServiceRegistrar, log *slog.Logger) {
	mount(router, s.videos, log)
	registerGRPC(rpc, s.videos)
	engagement.Mount(router, s.engagements, log)
	engagement.RegisterGRPC(rpc, s.engagements)
	registerReplication(rpc, s)
}
