package catalog

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/checkpoint"
)

// brokerRetry is the pause while the broker or the database is unavailable.
var brokerRetry = backoff.Policy{Base: 100 * time.Millisecond, Cap: 5 * time.Second}

// compareWindows logs an error for each subscription that can bring back events which the inbox has
// forgotten. It does not stop the service, because readers would lose the service at once. Such
// events come only after an operator seeks. Even then they are not applied again, because of their
// versions.
func compareWindows(ctx context.Context, client *pubsub.Client, subscriptions []string, remembers time.Duration, log *slog.Logger) {
	for _, subscription := range subscriptions {
		retention, err := awaitRetention(ctx, client, subscription)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			log.WarnContext(ctx, "retention not compared", "subscription", subscription, "error", err)
		case retention.Replay >= remembers:
			log.ErrorContext(ctx, "a seek can bring back events that the inbox has forgotten: raise -inbox-retention, or lower the retention",
				"subscription", subscription, "replayable", retention.Replay.String(), "inbox_retention", remembers.String())
		}
	}
}

// awaitRetention reads the retention of a subscription. It tries again while the broker or the
// subscription is away, and returns any other error.
func awaitRetention(ctx context.Context, client *pubsub.Client, subscription string) (r checkpoint.Retention, err error) {
	for range brokerRetry.Attempts(ctx) {
		r, err = checkpoint.ReadRetention(ctx, client, subscription)
		switch status.Code(errors.Unwrap(err)) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.NotFound:
		default:
			return r, err
		}
	}
	return r, ctx.Err()
}
