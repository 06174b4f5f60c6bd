package video

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/canary"
	"example.com/lockstep/internal/idempotency"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/instrument"
	"example.com/lockstep/services/video/aggregate"
)

// canaryWriter commits a version of the synthetic video once per interval, whatever the number of
// instances. The row has the time of its last version. An instance locks the row, and makes a new
// version only if the last one is older than the interval. From this transaction on, the version
// takes the same path as a user's change. The video belongs to a tenant without users. So row-level
// security keeps the video out of every list.
type canaryWriter struct {
	writer   *aggregate.Writer
	interval time.Duration
	log      *slog.Logger
	commits  metric.Int64Counter
}

func newCanaryWriter(writer *aggregate.Writer, interval time.Duration, log *slog.Logger) *canaryWriter {
	commits := instrument.For("example.com/lockstep/services/video").Counter("canary.commits", "{commit}",
		"Versions of the canary that this instance has committed; with several instances one of them commits each")
	instrument.Begin(commits)
	return &canaryWriter{writer: writer, interval: interval, log: log.With("component", "canary"), commits: commits}
}

// canaryRetry is the pause after a commit that failed.
var canaryRetry = backoff.Policy{Base: time.Second, Cap: 30 * time.Second}

// run commits versions until ctx ends, then returns nil. It calls heartbeat before each try.
func (c *canaryWriter) run(ctx context.Context, heartbeat func()) error {
	// Without jitter, all instances would compete for one lock at once, and all but one would find
	// nothing to do.
	jitter := backoff.Policy{Base: c.interval / 10, Cap: c.interval / 10}
	for failures := 0; ; {
		heartbeat()
		due, err := c.commit(ctx)
		pause := min(time.Until(due), c.interval) + jitter.Delay(1) // the clock may have been set back
		if err != nil {
			failures++
			pause = canaryRetry.Delay(failures)
			if ctx.Err() == nil {
				c.log.WarnContext(ctx, "canary not committed", "failures", failures, "error", err)
			}
		} else {
			failures = 0
		}
		if !backoff.Sleep(ctx, pause, nil) {
			return nil
		}
	}
}

// commit commits the next version if it is due. It returns the time at which a version is due next.
func (c *canaryWriter) commit(ctx context.Context) (due time.Time, err error) {
	caller, wrote := auth.Principal{Kind: auth.Everyone, Tenant: canary.Tenant}, false
	result, err := aggregate.Write(ctx, c.writer, caller, canary.Video.String(), idempotency.Request{},
		func(ctx context.Context, tx *aggregate.Tx) (Video, error) {
			wrote = false
			v, err := lockNamedVideo(ctx, tx, canary.Video)
			if err != nil || c.fresh(v, time.Now()) {
				return v, err
			}
			v, err = nextCanary(ctx, tx, v)
			wrote = err == nil
			return v, err
		})
	if err != nil {
		return time.Time{}, fmt.Errorf("commit canary: %w", err)
	}
	if wrote {
		c.commits.Add(ctx, 1)
	}
	return result.Value.UpdatedAt.Add(c.interval), nil
}

// fresh reports whether v is younger than the interval. A version with a time in the future is not
// fresh, because its writer's clock was ahead.
func (c *canaryWriter) fresh(v Video, now time.Time) bool {
	age := now.Sub(v.UpdatedAt)
	return v.Version > 0 && 0 <= age && age < c.interval
}

// nextCanary writes the version after v, with its event. If v does not exist, nextCanary writes the
// first version. Each later version changes only the title, like a user's change of one field.
func nextCanary(ctx context.Context, tx *aggregate.Tx, v Video) (Video, error) {
	if v.Version == 0 {
		v = Video{ID: canary.Video, UploaderID: canary.Video, Title: "Canary 1"}
		v.Revision = aggregate.Revision{TenantID: tx.Tenant, Epoch: tx.Epoch}.Next()
		event, err := createdEvent(ctx, v)
		if err != nil {
			return Video{}, err
		}
		insertVideo(tx, v)
		return v, tx.Append(ctx, event)
	}
	if err := v.Check(aggregateType); err != nil {
		return Video{}, err
	}
	before := v.Revision
	v.Revision = before.Next()
	changed := v.set([]string{"title"}, Video{Title: fmt.Sprintf("Canary %d", v.Version)})
	event, err := updatedEvent(ctx, v, before, changed)
	if err != nil {
		return Video{}, err
	}
	updateVideo(tx, v)
	return v, tx.Append(ctx, event)
}
