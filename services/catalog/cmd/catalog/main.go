// Command catalog is the read model of videos; see package catalog.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/operator"
	"example.com/lockstep/internal/topics"
	"example.com/lockstep/migrations"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/operator/deadletter"
	"example.com/lockstep/pkg/eventing/operator/erasure"
	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/services/catalog"
)

var environment = `  LISTEN_DATABASE_URL    the same database past a transaction pooler; without
                         one that can LISTEN, waiting reads poll
  GOOGLE_CLOUD_PROJECT   project of the subscriptions
                         ` + strings.Join(topics.Subscriptions(topics.Catalog), ",\n                         ") + `
  VIDEO_SERVICE_ADDR     gRPC of the service that owns videos, host:port; on
                         port 443 with TLS and an ID token of Google's
  PUBSUB_ENDPOINT        regional endpoint of Pub/Sub, host:port
  PUBSUB_EMULATOR_HOST   emulator in place of Pub/Sub, host:port
` + auth.Usage

var readModel = operator.ReadModel{
	Subscriptions: topics.Subscriptions(topics.Catalog), OwnerVariable: "VIDEO_SERVICE_ADDR",
	Types: catalog.Types, Schema: string(migrations.Catalog), Offsets: catalog.EngagementOffsets, Positions: catalog.Positions,
	// In the process of a tool no reader waits for the projections.
	Projections: func(db *pgxpool.Pool, owner *grpc.ClientConn) operator.Projections {
		return catalog.NewProjector(db, owner, catalog.NewWaiters(0, db, "", slog.Default()), slog.Default())
	},
	Rebuild: func(db *pgxpool.Pool, owner *grpc.ClientConn) *rebuild.Rebuild {
		return catalog.NewRebuild(db, owner, slog.Default())
	},
	Erasure: func(db *pgxpool.Pool, owner *grpc.ClientConn, letters *deadletter.Batch, o erasure.Options) erasure.Eraser {
		return catalog.NewErasure(db, owner, letters, o)
	},
}

func main() { os.Exit(service().Main()) }

// leastRetention is the smallest value of the flag -inbox-retention. It is a day longer than a subscription
// keeps messages by default. While a subscription keeps a message, the message may be delivered again, and
// the inbox must still know its event.
const leastRetention = 8 * 24 * time.Hour

// retention is the value of the flag -inbox-retention, which is at least leastRetention.
type retention time.Duration

func (r *retention) String() string { return time.Duration(*r).String() }

func (r *retention) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err == nil && d < leastRetention {
		err = fmt.Errorf("a subscription can replay more: at least %v", leastRetention)
	}
	*r = retention(d)
	return err
}

func service() command.Service {
	cfg := catalog.Config{InboxRetention: inbox.Retention}
	var waiting uint
	return command.Service{
		Name: migrations.Catalog, About: "is a read model of videos, as fresh as a reader asks: REST and gRPC on one port.",
		Environment: environment,
		Flags: func(f *flag.FlagSet, local bool) {
			cfg.Flags(f, local)
			f.UintVar(&waiting, "max-waiting-reads", catalog.MaxWaiting,
				"how many reads wait for fresh data at once; half of what the platform lets an instance serve; 0 is the default")
			f.Var((*retention)(&cfg.InboxRetention), "inbox-retention", "how long the inbox remembers a settled event: "+
				"longer than the subscriptions, or their topics, keep messages for a replay")
			f.Var(&cfg.EngagementStart, "engagement-start", "where engagements begin: resume (no seek), earliest, or a duration: "+
				"so long before the stored position; a deployment seeks once. A seek acknowledges messages from before its "+
				"time: with an older backlog, which the position does not know, take earliest")
			f.StringVar(&cfg.Deployment, "deployment", "", "the name of this deployment, for -engagement-start outside of Cloud Run")
			command.IntervalFlag(f, &cfg.CheckInterval, "reconcile-interval", catalog.CheckInterval,
				"the `duration` from one comparison of the whole read model with video's rows to the next, slowly and without repairs; 0 is never")
			// fork: leave out
			f.BoolVar(&cfg.Live, "live", false, "serve a page that shows this process at work, below /live/ of ADMIN_PORT, which it needs")
			// fork: go on
		},
		Configure: func(r *command.Environment) command.Process {
			cfg.ReadEnvironment(r)
			cfg.MaxWaiting = int(min(waiting, math.MaxInt32))
			return command.Process{Project: cfg.Project, Serve: func(ctx context.Context, lis, admin net.Listener, log *slog.Logger) error {
				cfg.Admin = admin
				return catalog.Serve(ctx, cfg, lis, log)
			}}
		},
		Tools: readModel.Tools(),
	}
}
