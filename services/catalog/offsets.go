package catalog

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/serve"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/checkpoint"
	"example.com/lockstep/pkg/eventing/inbox"
)

// EngagementOffsets names the checkpoints of the consumer of engagements. The consumer of videos has
// no checkpoints, because a consumer can go on without a saved position (see package checkpoint), and
// the only table of checkpoints belongs to engagements.
var EngagementOffsets = checkpoint.Names{
	Table: "engagement_offsets", Group: "catalog.engagement", Subscription: EngagementSubscription,
	Metrics: "catalog.engagement.offset",
}

// engagementConsumer returns the loop of the consumer of engagements, which has checkpoints.
func (c Config) engagementConsumer(
	db *pgxpool.Pool, client *pubsub.Client, streams *inbox.Streams, h inbox.Handler, health *serve.Health, log *slog.Logger,
) func(context.Context) error {
	heartbeat, offsets := health.Register("engagement consumer"), checkpoint.New(db, EngagementOffsets, c.writer(), log)
	consumer := inbox.NewConsumer(db, client, EngagementSubscription, h, log, heartbeat,
		inbox.Options{Retention: c.InboxRetention, Streams: streams, Checkpoints: offsets})
	health.ShowFailures("engagement consumer", consumer.FailuresInARow)
	start := seeker{c.EngagementStart, c.Deployment, EngagementSubscription, offsets, client, log}
	return start.before(consumer.Run, heartbeat)
}

// Start says where a consumer with checkpoints begins. The zero value makes no seek, and the
// consumer goes on with the messages that are not acknowledged. No value seeks to a time after the
// group's safe position. The reason is that a seek acknowledges all messages from before its time,
// even messages that no instance has applied; see package checkpoint.
type Start struct {
	// Earliest seeks to before the oldest message that the subscription has.
	Earliest bool
	// Back is the time by which the seek goes back from the group's safe position. There is no seek
	// if the group has no position, or if an earlier seek of the group may still bring messages
	// back. The safe position does not take account of messages that the broker has not delivered.
	// If the backlog is older than Back, the seek would acknowledge such messages, and Earliest is
	// the safe choice.
	Back time.Duration
}

// String is the text that Set reads.
func (s *Start) String() string {
	switch {
	case s.Earliest:
		return "earliest"
	case s.Back > 0:
		return s.Back.String()
	}
	return "resume"
}

// Set reads resume, earliest, or a duration.
func (s *Start) Set(text string) error {
	switch text {
	case "resume":
		*s = Start{}
		return nil
	case "earliest":
		*s = Start{Earliest: true}
		return nil
	}
	back, err := time.ParseDuration(text)
	if err != nil || back <= 0 {
		return errors.New("want resume, earliest, or how long before the stored position, such as 10m")
	}
	*s = Start{Back: back}
	return nil
}

// resumes reports whether s makes no seek.
func (s *Start) resumes() bool { return *s == Start{} }

// seeker seeks before a consumer starts.
type seeker struct {
	start        Start
	deployment   string
	subscription string
	offsets      *checkpoint.Store
	client       *pubsub.Client
	log          *slog.Logger
}

// before returns a loop that seeks and then calls run. A deployment seeks once. If the seek fails,
// it is tried again until it succeeds or ctx ends.
func (s seeker) before(run func(context.Context) error, heartbeat func()) func(context.Context) error {
	return func(ctx context.Context) error {
		for failures := 1; !s.start.resumes() && ctx.Err() == nil; failures++ {
			heartbeat()
			err := s.seek(ctx)
			if err == nil {
				break
			}
			pause := brokerRetry.Delay(failures)
			s.log.WarnContext(ctx, "consumer does not start, because its seek failed", "subscription", s.subscription,
				"start", s.start.String(), "deployment", s.deployment, "error", err, "retry_in_ms", pause.Milliseconds())
			backoff.Sleep(ctx, pause, nil)
		}
		return run(ctx)
	}
}

func (s seeker) seek(ctx context.Context) error {
	to, err := s.offsets.Start(ctx, s.client, s.deployment, s.start.Back)
	if err == nil && !to.IsZero() {
		s.log.InfoContext(ctx, "consumer starts", "subscription", s.subscription, "start", s.start.String(),
			"deployment", s.deployment, "to", to)
	}
	return err
}

// writer names the process in the table of offsets.
func (c Config) writer() string {
	host, _ := os.Hostname() // if it fails, an empty name is good enough
	return cmp.Or(c.Deployment, host)
}
