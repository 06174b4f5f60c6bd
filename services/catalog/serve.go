package catalog

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/connect"
	"example.com/lockstep/internal/serve"
	"example.com/lockstep/internal/topics"
	"example.com/lockstep/migrations"
	"example.com/lockstep/pkg/eventing/inbox"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
)

// The subscriptions with the events that catalog follows.
var (
	Subscription           = topics.Subscription(topics.Video, topics.Catalog)
	EngagementSubscription = topics.Subscription(topics.Engagement, topics.Catalog)
)

// Config is the configuration of a process that serves catalog.
type Config struct {
	serve.Config

	// MaxWaiting is how many readers may wait at once. 0 means the constant MaxWaiting.
	MaxWaiting int
	// VideoServiceAddr is the owner's gRPC address (host:port); see [connect.Dial].
	VideoServiceAddr string
	// fork: leave out
	// Live serves a page about this process below /live/ on Admin, and needs that listener.
	Live bool
	// fork: go on
	// InboxRetention is how long a settled event's inbox row is kept. Zero means [inbox.Retention].
	InboxRetention time.Duration
	// EngagementStart is where the consumer of engagements begins.
	EngagementStart Start
	// Deployment is the name of the deployment that the process belongs to. All processes of a
	// deployment together make one seek when they start. The checkpoints name the deployment as their
	// writer. Outside of Cloud Run Deployment is empty, unless a flag sets it.
	Deployment string
	// CheckInterval is the time from the start of one check of the projections against their owner
	// to the start of the next check. Zero means that there are no checks.
	CheckInterval time.Duration
}

// ReadEnvironment sets the fields that come from environment variables. It reports missing and
// invalid variables to r.
// If c.Deployment is set already, it stays.
func (c *Config) ReadEnvironment(r *command.Environment) {
	r.Required("VIDEO_SERVICE_ADDR")
	c.VideoServiceAddr = r.HostPort("VIDEO_SERVICE_ADDR", "")
	c.Config.ReadEnvironment(r)
	c.Deployment = cmp.Or(c.Deployment, r.String("K_REVISION", r.String("CLOUD_RUN_WORKER_POOL_REVISION", "")))
}

// Serve runs the service on lis until ctx is cancelled, and closes lis. Then it drains within 10
// seconds: first the API, then the consumers, then the parts that all of them use. Serve also
// starts if the database, the broker or the owner is away. Only the database makes the process
// unready. If one part fails, all parts end, and Serve returns the error of that part.
func Serve(ctx context.Context, cfg Config, lis net.Listener, log *slog.Logger) error {
	defer lis.Close() // in case Serve returns before the server owns lis
	callers, err := auth.New(ctx, cfg.Auth, log)
	if err != nil {
		return err
	}
	if !cfg.EngagementStart.resumes() && cfg.Deployment == "" {
		return errors.New("-engagement-start needs -deployment outside of Cloud Run: a deployment seeks once")
	}
	pools, err := connect.OpenPools(ctx, cfg.DatabaseURL)
	if err != nil {
		return err
	}
	defer pools.Close()
	streams := inbox.NewStreams()
	client, err := connect.NewPubSub(ctx, cfg.Project,
		connect.PubSubOptions{Endpoint: cfg.PubSubEndpoint, Dial: []grpc.DialOption{streams.DialOption()}})
	if err != nil {
		return err
	}
	defer client.Close()
	owner, err := connect.Dial(cfg.VideoServiceAddr)
	if err != nil {
		return err
	}
	defer owner.Close()

	health := serve.NewHealth(log, serve.Check{Name: "database", Run: func(ctx context.Context) error {
		return migrations.Check(ctx, pools.Probe, migrations.Catalog)
	}})
	health.Admin = cfg.Admin
	waiters := NewWaiters(cmp.Or(cfg.MaxWaiting, MaxWaiting), pools.Loops, cfg.ListenURL, log)
	projector := NewProjector(pools.Loops, owner, waiters, log)
	watching := health.Register("waiters")
	loops := append(cfg.consumers(pools.Loops, client, streams, newTimed(projector.Handler()), health, log), callers.Run,
		func(ctx context.Context) error { return waiters.Run(ctx, log, watching) })
	loops = append(loops, completions(projector, health)...)
	loops = append(loops, cfg.checks(pools.Loops, projector, log, health)...)
	// fork: leave out
	watched, err := cfg.livePage(health, log)
	if err != nil {
		return err
	}
	loops = append(loops, watched...)
	// fork: go on

	defer context.AfterFunc(ctx, waiters.Drain)()
	server := cfg.server(NewService(pools.Requests, projector), callers, log, health)
	log.InfoContext(ctx, "catalog serves", "addr", lis.Addr().String(), "project", cfg.Project, "owner", cfg.VideoServiceAddr)
	return server.Run(ctx, lis, loops...)
}

// consumers returns the loops of the consumers, and a loop that compares how long the subscriptions
// and the inbox keep events.
func (c Config) consumers(
	db *pgxpool.Pool, client *pubsub.Client, streams *inbox.Streams, h inbox.Handler, health *serve.Health, log *slog.Logger,
) (loops []func(context.Context) error) {
	// A map, because `make aggregate` adds the subscriptions of further topics.
	for loop, subscription := range map[string]string{
		"consumer": Subscription,
	} {
		opts := inbox.Options{Retention: c.InboxRetention, Streams: streams}
		consumer := inbox.NewConsumer(db, client, subscription, h, log, health.Register(loop), opts)
		health.ShowFailures(loop, consumer.FailuresInARow)
		loops = append(loops, consumer.Run)
	}
	loops = append(loops, c.engagementConsumer(db, client, streams, h, health, log))
	return append(loops, func(ctx context.Context) error {
		remembers := cmp.Or(c.InboxRetention, inbox.Retention)
		compareWindows(ctx, client, topics.Subscriptions(topics.Catalog), remembers, log)
		return nil
	})
}

// completions returns the loops that complete rows which an older build has left incomplete.
func completions(p *Projector, health *serve.Health) (loops []func(context.Context) error) {
	for rows, complete := range map[string]func(context.Context, func()) error{
		"videos":      p.videos.Complete,
		"engagements": p.engagements.Complete,
	} {
		heartbeat := health.Register("incomplete " + rows)
		loops = append(loops, func(ctx context.Context) error { return complete(ctx, heartbeat) })
	}
	return loops
}

// checks returns the loop that compares the projections with their owner. Without a CheckInterval
// there is no loop.
func (c Config) checks(db *pgxpool.Pool, p *Projector, log *slog.Logger, health *serve.Health) []func(context.Context) error {
	if c.CheckInterval == 0 {
		return nil
	}
	log = log.With("owner", c.VideoServiceAddr) // if all rows differ, the address is the first suspect
	return []func(context.Context) error{newWatch(db, p.Checks(), c.CheckInterval, log, health.Register("checks")).Run}
}

func (c Config) server(s *Service, callers *auth.Authenticator, log *slog.Logger, health *serve.Health) *serve.Server {
	guard := serve.NewGuard(access, callers, c.Limits)
	rpc := newGRPC(s, log, guard)
	if c.Reflection {
		rpc.Reflect()
	}
	return serve.New(log, newRouter(s, log, health, guard), rpc, health)
}

func newRouter(s *Service, log *slog.Logger, health *serve.Health, guard *serve.Guard) *chi.Mux {
	router := serve.NewRouter(log, health, guard)
	restAPI{s, log}.mount(router)
	return router
}

func newGRPC(s *Service, log *slog.Logger, guard *serve.Guard) *serve.GRPC {
	rpc := serve.NewGRPC(log, guard)
	catalogv1.RegisterCatalogServiceServer(rpc, grpcServer{service: s})
	return rpc
}
