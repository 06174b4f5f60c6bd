package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/telemetry"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/operator/backlog"
	"example.com/lockstep/pkg/eventing/outbox"
)

// lastLook is how long the count of what is left goes on after SIGTERM, or after the relay that SIGTERM has ended.
// A process has 10 s to end, and the relay takes some 4 s of them.
const lastLook = 3 * time.Second

// poll is the pause between two checks for remaining events.
var poll = backoff.Policy{Base: 200 * time.Millisecond, Cap: 2 * time.Second}

// drain relays events until no event is left that was committed before the drain began and could be sent.
// Parked events do not make the drain fail, because another drain would change nothing. If drains by a job
// replace the relay of a service, the log line of drained may be the only signal of parked events.
//
// After --timeout, the relay has a few seconds for its requests under way, and the count of what is
// left has its own time limit, so the process ends within 20 seconds more. After SIGTERM it ends within 10 seconds.
func (o Owner) drain(ctx context.Context, s *invocation) error {
	timeout := s.flags.Duration("timeout", 5*time.Minute, "")
	if err := s.parse(0); err != nil {
		return err
	}
	if *timeout <= 0 {
		return command.Usagef("--timeout %s: not positive", *timeout)
	}
	end := time.Now().Add(*timeout)
	// The pool and the client that are opened within connecting do not end with it.
	connecting, cancel := context.WithDeadlineCause(ctx, end, fmt.Errorf("no database after %s", *timeout))
	defer cancel()
	if err := s.connect(connecting, needs{pubsub: true}); err != nil {
		return err
	}
	project := s.pubsub.Project()
	log := telemetry.Logger(s.Err, slog.LevelWarn, "outbox drain", project)
	relay := outbox.NewRelay(s.db, s.pubsub, o.Topics(project), log, func() {},
		outbox.Options{TenantRate: outbox.NoTenantRate}) // every event must leave, so no tenant has to wait
	limited, cancel := context.WithDeadlineCause(ctx, end, fmt.Errorf("events are left after %s", *timeout))
	defer cancel()
	left := relayUntilDrained(limited, relay, s.db)
	counting, cancel := outliving(ctx, lastLook)
	defer cancel()
	return errors.Join(left, s.drained(counting, log))
}

// outliving returns a context with the values of ctx. It ends when ctx has ended, and the time d has passed since.
func outliving(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if backoff.Sleep(longer, d, nil) {
			cancel()
		}
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// relayUntilDrained returns nil once no event is left that was committed before the call and could
// be sent.
func relayUntilDrained(ctx context.Context, relay *outbox.Relay, pool *pgxpool.Pool) error {
	relaying, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(relaying) }()
	err := untilDrained(ctx, backlog.New(pool))
	stop()
	return errors.Join(err, <-ended)
}

// untilDrained returns when no event is left that was committed before the call and could be sent. Later
// events do not count: under steady writes there is always one. untilDrained continues through an outage of
// the database, as the relay does. If the database is away at the call, untilDrained also waits for the events
// that are committed before the end of the outage.
func untilDrained(ctx context.Context, events *backlog.Backlog) (err error) {
	var start backlog.Moment
	for range poll.Attempts(ctx) {
		if start == "" {
			if start, err = events.Moment(ctx); err != nil {
				continue
			}
		}
		var sendable bool
		if sendable, err = events.Sendable(ctx, start); err == nil && !sendable {
			return nil
		}
	}
	return errors.Join(context.Cause(ctx), err)
}

// needPerson is the message about parked events. Terraform's alert on parked events looks for it in the log.
const needPerson = "events are parked and need a person"

// drained prints the state of the outbox, and logs the number of parked events.
func (s *invocation) drained(ctx context.Context, log *slog.Logger) error {
	now, err := backlog.New(s.db).Status(ctx)
	if err != nil {
		return err
	}
	if now.Parked > 0 {
		log.ErrorContext(ctx, needPerson, "parked", now.Parked, "blocked", now.Blocked)
	}
	left := map[string]any{"pending": now.Pending, "more": now.More, "parked": now.Parked, "blocked": now.Blocked}
	return s.print(left, func(w io.Writer) {
		printCounts(w, now)
		if now.Parked > 0 {
			fmt.Fprintf(w, "%d %s: `outbox status`\n", now.Parked, needPerson)
		}
	})
}
