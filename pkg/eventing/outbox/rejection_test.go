package outbox

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing"
)

func TestRejectionParksItsAggregateOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "good", 1, 3)
	b.append(t, "bad", 1, 3)
	// The next refusal is the last: this test is not about the backoff in between.
	b.exec(t, `UPDATE outbox SET publish_attempts = $1 WHERE aggregate_id = 'bad' AND version = 2`, maxAttempts-1)
	b.setFault(func(ctx context.Context, req *pubsubpb.PublishRequest, send func(context.Context) error) error {
		for _, m := range req.Messages {
			if m.OrderingKey == "bad" && m.Attributes[eventing.AttrVersion] == "2" {
				return status.Error(codes.InvalidArgument, "no such field")
			}
		}
		return send(ctx)
	})
	b.relay(t, 2)
	b.eventually(t, 1, `SELECT count(*) FROM outbox WHERE parked_at IS NOT NULL AND last_error LIKE '%no such field%'`)
	b.append(t, "good", 4, 4)
	b.eventually(t, 0, unpublished+` AND aggregate_id = 'good'`)
	if got := b.sent("bad"); !slices.Equal(got, []int64{1}) {
		t.Errorf("sent %v of the refused aggregate, want version 1 alone", got)
	}
	if n := b.count(t, `SELECT publish_attempts FROM outbox WHERE aggregate_id = 'bad' AND version = 2`); n != maxAttempts {
		t.Errorf("%d attempts, want %d", n, maxAttempts)
	}
	// An operator repairs the event, and it goes.
	b.setFault(nil)
	b.exec(t, `UPDATE outbox SET parked_at = NULL, next_retry_at = NULL WHERE aggregate_id = 'bad'`)
	b.eventually(t, 0, unpublished)
	firstSightings(t, b.sent("bad"), 3)
}

func TestRejectionSpendsAnAttemptAndWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "a", 1, 1)
	b.setFault(func(context.Context, *pubsubpb.PublishRequest, func(context.Context) error) error {
		return status.Error(codes.InvalidArgument, "bad")
	})
	stop := b.relay(t, 1)
	b.eventually(t, 1, `SELECT count(*) FROM outbox WHERE publish_attempts > 0 AND next_retry_at IS NOT NULL AND parked_at IS NULL`)
	stop()
}

func TestUnknownAggregateTypeIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "a", 1, 1)
	b.exec(t, `UPDATE outbox SET aggregate_type = 'mystery'`)
	b.relay(t, 1)
	b.eventually(t, 1, `SELECT count(*) FROM outbox WHERE publish_attempts > 0 AND last_error LIKE '%mystery%'`)
}

func TestMissingTopicSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "a", 1, 2)
	deleted := b.client.TopicAdminClient.DeleteTopic(t.Context(), &pubsubpb.DeleteTopicRequest{Topic: topic})
	if deleted != nil {
		t.Fatal(deleted)
	}
	var refusals atomic.Int64
	tried := make(chan struct{})
	b.setFault(func(ctx context.Context, _ *pubsubpb.PublishRequest, send func(context.Context) error) error {
		err := send(ctx)
		if status.Code(err) == codes.NotFound && refusals.Add(1) == 3 {
			close(tried)
		}
		return err
	})
	b.relay(t, 1)
	<-tried
	if n := b.count(t, attempted); n != 0 {
		t.Errorf("a missing topic spent %d attempts", n)
	}
	if _, err := b.client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic}); err != nil {
		t.Fatal(err)
	}
	b.eventually(t, 0, unpublished)
	firstSightings(t, b.sent("a"), 2)
}
