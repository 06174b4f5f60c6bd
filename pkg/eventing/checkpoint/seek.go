package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/pkg/eventing/operator/audit"
)

// brokerTimeout bounds one call of the broker. The timeout is less than the 15 seconds for which a
// session of the service's role may be idle within a transaction.
const brokerTimeout = 8 * time.Second

// groupLock is the SQL key of an advisory lock. With this lock the seeks of a group take turns.
const groupLock = `hashtext('lockstep offset reset ' || $1)`

// ErrBusy means that another seek of the group is under way.
var ErrBusy = errors.New("another reset, or the start of a deployment, is under way")

// ErrDiscards means that a reset would give up messages that may not have been applied.
var ErrDiscards = errors.New("a seek to after the safe position gives up messages that were not applied")

// Retention is how far back the messages of a subscription reach.
type Retention struct {
	// Replay is how far back a seek can bring back acknowledged messages. Zero means that a seek
	// brings back none.
	Replay time.Duration
	// Oldest is the greatest age of any message, even one that was never acknowledged. A seek
	// back by that age acknowledges no message.
	Oldest time.Duration
}

// ReadRetention returns the retention of a subscription, including the retention of its topic.
func ReadRetention(ctx context.Context, client *pubsub.Client, subscription string) (r Retention, err error) {
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	found, err := client.SubscriptionAdminClient.GetSubscription(ctx, &pubsubpb.GetSubscriptionRequest{
		Subscription: fullName(client, subscription),
	})
	if err != nil {
		return r, fmt.Errorf("read subscription %s: %w", subscription, err)
	}
	r.Replay = found.GetTopicMessageRetentionDuration().AsDuration()
	r.Oldest = max(r.Replay, found.GetMessageRetentionDuration().AsDuration())
	if found.GetRetainAckedMessages() {
		r.Replay = r.Oldest
	}
	return r, nil
}

// Now returns the present time by the database's clock, which also sets the times in the table.
func (s *Store) Now(ctx context.Context) (now time.Time, err error) {
	err = s.db.Statement("read the clock", `SELECT clock_timestamp()`).Scan(ctx, &now)
	return now, err
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

// Start seeks the subscription once for each deployment. It seeks to the group's safe position
// minus the duration back. If back is zero, it seeks to before the oldest message of the
// subscription. The first instance writes a row for the deployment in a transaction that ends after
// the seek. Instances that start at the same time wait for that transaction, as they would wait for
// a reset. Then they find the row, and do not seek. The same is true of instances that start later.
// If the process ends before the commit, there is no row, and another instance seeks.
//
// Start returns the time that it has sought to, or the zero time if there was no seek. A start
// without a seek is safe, too, because the consumer goes on with the messages that are not
// acknowledged. The log has the reason why there was no seek. Either the deployment has a row
// already, or the group has no position from which to subtract back, or the messages of an earlier
// seek may still come again. In the last case a seek would take each deployment further back than
// the deployment before it.
func (s *Store) Start(ctx context.Context, client *pubsub.Client, deployment string, back time.Duration) (sought time.Time, err error) {
	retention, err := ReadRetention(ctx, client, s.names.Subscription)
	if err != nil {
		return sought, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout+brokerTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, s.db.DB, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(`+groupLock+`)`, s.names.Group); err != nil {
			return err
		}
		to, at, why, err := s.startAt(ctx, tx, back, retention.Oldest)
		if err != nil {
			return err
		}
		// If the group has no position, any message of the subscription may be undelivered. So the
		// row gets a time before all messages, and later deployments read that time.
		n, err := s.write(ctx, tx, "start "+deployment, "start", to, at, s.by)
		switch {
		case err != nil:
			return err
		case n == 0:
			why = "the deployment has started before"
		case why == "":
			sought = to
			return s.seek(ctx, client, to)
		}
		s.log.InfoContext(ctx, "no seek at the start: the consumer goes on with what is not acknowledged",
			"deployment", deployment, "reason", why)
		return nil
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("start of deployment %s: %w", deployment, err)
	}
	return sought, nil
}

// startAt returns the time for a deployment's row, and the reason why there must be no seek to that time.
// An empty reason means that a seek is allowed. oldest is the greatest age of a message. back is the
// duration to subtract from the safe position, or zero for a seek to before the oldest message. at is for
// the row's updated_at; nil is the present.
//
// While the messages of an earlier seek may still come again, to and at are both the updated_at of the
// group's newest row. So the deployment's row does not count as a row of a replay, and it is no newer than
// the newest row. If at were the present, the deployment's row would be the newest one, and rows that are
// too much older would not count for the safe position any more. While no consumer works, the safe position
// would then move with each deployment, past messages that were not applied, and a later deployment would
// seek to there.
func (s *Store) startAt(ctx context.Context, tx pgx.Tx, back, oldest time.Duration) (to time.Time, at *time.Time, why string, err error) {
	var now time.Time
	var replaying bool
	err = tx.QueryRow(ctx, `
		SELECT clock_timestamp(), coalesce(bool_or(source <> 'save' AND publish_time < updated_at - interval '1 minute'
		         AND updated_at > newest - greatest(interval '1 hour', updated_at - publish_time)), false)
		  FROM (SELECT source, publish_time, updated_at, max(updated_at) OVER () AS newest FROM `+s.table+`
		         WHERE consumer_group = $1 AND subscription = $2) AS o`, s.names.Group, s.names.Subscription).Scan(&now, &replaying)
	if err != nil {
		return to, nil, "", err
	}
	if back == 0 {
		return now.Add(-oldest), nil, "", nil
	}
	group, err := s.load(ctx, tx)
	switch {
	case err != nil:
		return to, nil, "", err
	case group.SafePosition.IsZero():
		return now.Add(-oldest), nil, "the group has no position", nil
	case replaying:
		return group.UpdatedAt, &group.UpdatedAt, "the messages of an earlier seek may still come again", nil
	}
	return group.SafePosition.Add(-back), nil, "", nil
}

// Reset moves the subscription to a time, forward or backward, and the group's position with it.
// The rows of the instances are deleted, and their next saves insert them again. The rows of the
// deployments get the new position. They are not deleted, so that no deployment seeks once more. An
// entry in the audit table has the rows from before the reset and the new position.
//
// Reset returns ErrDiscards if the time to is after the group's safe position and discard is false.
// It returns ErrBusy if another reset, or the start of a deployment, is under way. In both cases
// nothing was moved. The audit entry is committed before the seek, so there is no seek without an
// entry, even if the process ends in between. If the entry is committed and the seek fails, the
// error says so. The rows are replaced after the seek, because locks on the rows would hold up the
// batches of the instances until the broker has answered. But the row of a reset that does not go past the
// safe position is committed with the entry. If the broker then gives no answer, or the process ends, a
// replay may have begun all the same, and the row keeps deployments from a seek forward through the replay.
// Reset may be repeated.
func (s *Store) Reset(ctx context.Context, client *pubsub.Client, to time.Time, discard bool, o audit.Actor) error {
	ctx, cancel := context.WithTimeout(ctx, 2*queryTimeout+brokerTimeout)
	defer cancel()
	to = to.Truncate(time.Microsecond) // as the table keeps it
	return pgx.BeginFunc(ctx, s.db.DB, func(tx pgx.Tx) error {
		var alone bool
		err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock(`+groupLock+`)`, s.names.Group).Scan(&alone)
		switch {
		case err != nil:
			return fmt.Errorf("lock the offset: %w", err)
		case !alone:
			return ErrBusy
		}
		if err := s.recordReset(ctx, to, discard, o); err != nil {
			return fmt.Errorf("record the reset, of which nothing was moved: %w", err)
		}
		if err := s.seek(ctx, client, to); err != nil {
			return fmt.Errorf("the audit table has the reset already, and the subscription may have moved; repeat the reset: %w", err)
		}
		_, err = tx.Exec(ctx, `DELETE FROM `+s.table+` WHERE consumer_group = $1 AND source <> 'start'`, s.names.Group)
		if err == nil {
			_, err = tx.Exec(ctx, `UPDATE `+s.table+` SET publish_time = $2 WHERE consumer_group = $1`, s.names.Group, to)
		}
		if err == nil {
			_, err = s.write(ctx, tx, "reset", "reset", to, nil, o.By)
		}
		if err != nil {
			return fmt.Errorf("the subscription has moved, but the rows have not; repeat the reset: %w", err)
		}
		return nil
	})
}

// recordReset writes the audit entry of a reset, and the row of a reset to the safe position or an earlier
// time. It returns ErrDiscards if the reset would discard messages and discard is false. It reads the
// position again, because the position may have moved since the operator decided.
func (s *Store) recordReset(ctx context.Context, to time.Time, discard bool, o audit.Actor) error {
	// Meanwhile the caller's transaction holds the lock and is idle. The time limits of these
	// statements and of the seek are together less than the time for which a session of the
	// service's role may be idle within a transaction.
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	at, err := s.Load(ctx)
	switch {
	case err != nil:
		return err
	case to.After(at.SafePosition) && !discard:
		return ErrDiscards
	}
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
	return pgx.BeginFunc(ctx, s.db.DB, func(tx pgx.Tx) error {
		if !to.After(at.SafePosition) {
			if err := s.announce(ctx, tx, to, o.By); err != nil {
				return err
			}
		}
		return audit.Write(ctx, tx, "offset reset", o, audit.Subject{Record: record})
	})
}

// margin is the duration that the view subtracts from the publish time of a row, to get a safe position.
const margin = 10 * time.Minute

// announce writes the row of a reset before the seek of the reset. The row's publish time is margin later
// than the time to. So the view's safe position is to, and the operator can repeat the reset. If there is a
// row of an earlier reset with an earlier time, the row keeps that time, because the messages of the
// earlier reset may still come again.
func (s *Store) announce(ctx context.Context, tx pgx.Tx, to time.Time, by string) error {
	to = to.Add(margin)
	if rows, err := s.write(ctx, tx, "reset", "reset", to, nil, by); err != nil || rows > 0 {
		return err
	}
	_, err := tx.Exec(ctx, `
		UPDATE `+s.table+` SET publish_time = least(publish_time, $2), subscription = $3, updated_at = clock_timestamp(), updated_by = $4
		 WHERE consumer_group = $1 AND instance = 'reset'`, s.names.Group, to, s.names.Subscription, by)
	return err
}

// write inserts the row of a reset or of a deployment, unless the row exists. at is the row's
// updated_at; nil is the present. rows is the number of rows that it has inserted.
func (s *Store) write(
	ctx context.Context, tx pgx.Tx, instance, source string, to time.Time, at *time.Time, by string,
) (rows int64, err error) {
	tag, err := tx.Exec(ctx, `
		INSERT INTO `+s.table+` (consumer_group, instance, source, subscription, message_id, publish_time, lag_millis, updated_at, updated_by)
		VALUES ($1, $2, $3, $4, '', $5, greatest(0, 1000 * extract(epoch FROM clock_timestamp() - $5))::bigint,
		        coalesce($6, clock_timestamp()), $7)
		ON CONFLICT (consumer_group, instance) DO NOTHING`, s.names.Group, instance, source, s.names.Subscription, to, at, by)
	return tag.RowsAffected(), err
}
