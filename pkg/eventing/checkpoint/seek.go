package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/pkg/eventing/operator/audit"
)

// brokerTimeout bounds one call of the broker: less than a session of the service's role may
// be idle within a transaction.
const brokerTimeout = 8 * time.Second

// Window is how far back a seek of a subscription brings messages back, also acknowledged
// ones. Zero: it brings back none that was acknowledged.
func Window(ctx context.Context, client *pubsub.Client, subscription string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	found, err := client.SubscriptionAdminClient.GetSubscription(ctx, &pubsubpb.GetSubscriptionRequest{
		Subscription: fullName(client, subscription),
	})
	if err != nil {
		return 0, fmt.Errorf("read subscription %s: %w", subscription, err)
	}
	window := found.GetTopicMessageRetentionDuration().AsDuration()
	if found.GetRetainAckedMessages() {
		window = max(window, found.GetMessageRetentionDuration().AsDuration())
	}
	return window, nil
}

func fullName(client *pubsub.Client, subscription string) string {
	return "projects/" + client.Project() + "/subscriptions/" + subscription
}

func (s *Store) seek(ctx context.Context, client *pubsub.Client, to time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	_, err := client.SubscriptionAdminClient.Seek(ctx, &pubsubpb.SeekRequest{
		Subscription: fullName(client, s.names.Subscription), Target: &pubsubpb.SeekRequest_Time{Time: timestamppb.New(to)},
	})
	if err != nil {
		return fmt.Errorf("seek %s: %w", s.names.Subscription, err)
	}
	return nil
}

// Start seeks the subscription back to a time, once for each deployment: several instances
// that start at once, and those that start later, find the deployment's row. The row is
// written in a transaction that ends after the seek, and the others wait for it. If the
// process ends in between, there is no row, and another instance seeks. It returns false if
// the deployment has sought before.
//
// to must not be after the group's safe position.
func (s *Store) Start(ctx context.Context, client *pubsub.Client, deployment string, to time.Time) (sought bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout+brokerTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		n, err := s.write(ctx, tx, "start "+deployment, "start", to, s.by)
		if sought = n > 0; !sought || err != nil {
			return err
		}
		return s.seek(ctx, client, to)
	})
	if err != nil {
		return false, fmt.Errorf("start %s at %s: %w", deployment, to.UTC().Format(time.RFC3339), err)
	}
	return sought, nil
}

// Reset moves the subscription to a time, and the group's position with it, also backward.
// The rows of the instances go; their next saves make them again. An entry of audit has the
// rows from before and the new position.
//
// The entry comes first, in a transaction of its own: no seek is without an entry, although
// the process may end at any moment. An entry may be without a seek, and the error says so.
// The rows are replaced after the seek, because their locks would hold up the batches of the
// instances for as long as the broker takes. Reset may be repeated. The caller checks that
// to is not after the safe position, or that the operator discards the messages in between.
func (s *Store) Reset(ctx context.Context, client *pubsub.Client, to time.Time, o audit.Actor) error {
	if err := s.recordReset(ctx, to, o); err != nil {
		return fmt.Errorf("record the reset, of which nothing was moved: %w", err)
	}
	if err := s.seek(ctx, client, to); err != nil {
		return fmt.Errorf("the audit table has the reset already, but it was not done: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM `+s.table+` WHERE consumer_group = $1 AND source <> 'start'`, s.names.Group)
		if err == nil {
			_, err = s.write(ctx, tx, "reset", "reset", to, o.By)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("the subscription has moved, but the rows have not; repeat the reset: %w", err)
	}
	return nil
}

// recordReset writes the entry of audit.
func (s *Store) recordReset(ctx context.Context, to time.Time, o audit.Actor) error {
	before, err := s.Rows(ctx)
	if err != nil {
		return err
	}
	record, err := json.Marshal(map[string]any{
		"group": s.names.Group, "subscription": s.names.Subscription, "before": before, "publish_time": to,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		return audit.Write(ctx, tx, "offset reset", o, audit.Subject{Record: record})
	})
}

// write inserts a row that is no instance's, unless it exists.
func (s *Store) write(ctx context.Context, tx pgx.Tx, instance, source string, to time.Time, by string) (rows int64, err error) {
	tag, err := tx.Exec(ctx, `
		INSERT INTO `+s.table+` (consumer_group, instance, source, subscription, message_id, publish_time, lag_millis, updated_by)
		VALUES ($1, $2, $3, $4, '', $5, greatest(0, 1000 * extract(epoch FROM clock_timestamp() - $5))::bigint, $6)
		ON CONFLICT (consumer_group, instance) DO NOTHING`, s.names.Group, instance, source, s.names.Subscription, to, by)
	return tag.RowsAffected(), err
}
