package localpubsub_test

import (
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/localpubsub"
)

const snapshotName = "projects/p/snapshots/events"

func (w *world) seekTo(at time.Time) {
	w.t.Helper()
	if _, err := w.Seek(w.context(), &pubsubpb.SeekRequest{
		Subscription: subscriptionName, Target: &pubsubpb.SeekRequest_Time{Time: timestamppb.New(at)},
	}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) snapshot(name, subscription string) {
	w.t.Helper()
	if _, err := w.CreateSnapshot(w.context(), &pubsubpb.CreateSnapshotRequest{Name: name, Subscription: subscription}); err != nil {
		w.t.Fatal(err)
	}
}

// TestSeekToAnyYear seeks to the bounds of a Timestamp, and beyond the times that count nanoseconds
// in 64 bits.
func TestSeekToAnyYear(t *testing.T) {
	t.Parallel()
	for year, want := range map[int][]string{
		1: {"a", "b"}, 1600: {"a", "b"}, 1969: {"a", "b"}, 2100: nil, 2300: nil, 2600: nil, 9999: nil,
	} {
		w := newWorld(t, localpubsub.Options{})
		w.subscribe(&pubsubpb.Subscription{RetainAckedMessages: true})
		w.publish("", "a", "b")
		w.seekTo(time.Date(year, 12, 31, 0, 0, 0, 0, time.UTC))
		if got := texts(w.pull()); len(got) != len(want) {
			t.Errorf("after a seek to the year %d: %q, want %q", year, got, want)
		}
	}
}

// TestSeekToASnapshotWithoutTopic: a snapshot and a subscription that have lost their topics are not
// of the same topic, and a refused seek changes nothing.
func TestSeekToASnapshotWithoutTopic(t *testing.T) {
	t.Parallel()
	w := plain(t)
	w.snapshot(snapshotName, subscriptionName)
	const other, otherSnapshot = "projects/p/topics/other", "projects/p/snapshots/other"
	if _, err := w.CreateTopic(w.context(), &pubsubpb.Topic{Name: other}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.CreateSubscription(w.context(), &pubsubpb.Subscription{Name: "projects/p/subscriptions/other", Topic: other}); err != nil {
		t.Fatal(err)
	}
	w.snapshot(otherSnapshot, "projects/p/subscriptions/other")
	w.publish("", "a", "b")
	for _, topic := range []string{topicName, other} {
		if _, err := w.DeleteTopic(w.context(), &pubsubpb.DeleteTopicRequest{Topic: topic}); err != nil {
			t.Fatal(err)
		}
		for _, snapshot := range []string{snapshotName, otherSnapshot} {
			_, err := w.Seek(w.context(), &pubsubpb.SeekRequest{
				Subscription: subscriptionName, Target: &pubsubpb.SeekRequest_Snapshot{Snapshot: snapshot},
			})
			if status.Code(err) != codes.FailedPrecondition {
				t.Errorf("seek to %s = %v, want FAILED_PRECONDITION", snapshot, err)
			}
		}
	}
	wantTexts(t, w.pull(), "a", "b")
}

// TestUpdateSnapshotExpiry: a snapshot can be made to expire sooner or later, within 7 days of its creation, and not in the past.
func TestUpdateSnapshotExpiry(t *testing.T) {
	t.Parallel()
	w := plain(t)
	w.snapshot(snapshotName, subscriptionName)
	update := func(at *timestamppb.Timestamp) error {
		_, err := w.UpdateSnapshot(w.context(), &pubsubpb.UpdateSnapshotRequest{
			Snapshot:   &pubsubpb.Snapshot{Name: snapshotName, ExpireTime: at},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"expire_time"}},
		})
		return err
	}
	const week = 7 * 24 * time.Hour
	w.clock.Advance(24 * time.Hour)
	for _, refused := range []*timestamppb.Timestamp{
		nil, {Seconds: -1 << 62}, timestamppb.New(worldTime), timestamppb.New(w.clock.Now()), timestamppb.New(worldTime.Add(week + time.Second)),
	} {
		wantCode(t, update(refused), codes.InvalidArgument)
	}
	wantCode(t, update(timestamppb.New(w.clock.Now().Add(time.Hour))), codes.OK)
	wantCode(t, update(timestamppb.New(worldTime.Add(week))), codes.OK)
	there := func() error {
		_, err := w.GetSnapshot(w.context(), &pubsubpb.GetSnapshotRequest{Snapshot: snapshotName})
		return err
	}
	w.clock.Advance(2 * time.Hour)
	wantCode(t, there(), codes.OK)
	wantCode(t, update(timestamppb.New(w.clock.Now().Add(time.Minute))), codes.OK)
	w.clock.Advance(time.Minute)
	wantCode(t, there(), codes.NotFound)
}

// TestNoSnapshotOfADetachedSubscription: its backlog is gone, and it gets no messages any more.
func TestNoSnapshotOfADetachedSubscription(t *testing.T) {
	t.Parallel()
	w := plain(t)
	if _, err := w.DetachSubscription(w.context(), &pubsubpb.DetachSubscriptionRequest{Subscription: subscriptionName}); err != nil {
		t.Fatal(err)
	}
	_, err := w.CreateSnapshot(w.context(), &pubsubpb.CreateSnapshotRequest{Name: snapshotName, Subscription: subscriptionName})
	wantCode(t, err, codes.FailedPrecondition)
}

// TestTopicForgetsAtTheEndOfItsRetention: a seek of a new subscription brings back only what the topic still keeps.
func TestTopicForgetsAtTheEndOfItsRetention(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	if _, err := w.CreateTopic(w.context(), &pubsubpb.Topic{
		Name: topicName, MessageRetentionDuration: durationpb.New(10 * time.Minute),
	}); err != nil {
		t.Fatal(err)
	}
	w.publish("", "old")
	w.clock.Advance(9 * time.Minute)
	w.publish("", "new")
	w.clock.Advance(time.Minute)
	w.subscribe(&pubsubpb.Subscription{})
	w.seekTo(worldTime)
	wantTexts(t, w.pull(), "new")
}

// TestSeekAppliesTheFilter: a message that the topic has kept comes only if the filter matches.
func TestSeekAppliesTheFilter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	if _, err := w.CreateTopic(w.context(), &pubsubpb.Topic{
		Name: topicName, MessageRetentionDuration: durationpb.New(10 * time.Minute),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Publish(w.context(), &pubsubpb.PublishRequest{Topic: topicName, Messages: []*pubsubpb.PubsubMessage{
		{Data: []byte("paid"), Attributes: map[string]string{"kind": "paid"}}, {Data: []byte("other")},
	}}); err != nil {
		t.Fatal(err)
	}
	w.subscribe(&pubsubpb.Subscription{Filter: "attributes:kind"})
	w.seekTo(worldTime)
	wantTexts(t, w.pull(), "paid")
}

// TestSeekKeepsTheCounts: a message that a seek acknowledges and another brings back keeps its count of attempts.
func TestSeekKeepsTheCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.deadLetters(&pubsubpb.Subscription{RetainAckedMessages: true})
	w.publish("", "m")
	w.modify(0, w.pull()...)
	w.seekTo(worldTime.Add(time.Hour))
	wantTexts(t, w.pull())
	w.seekTo(worldTime)
	if got := w.pull(); len(got) != 1 || got[0].GetDeliveryAttempt() != 2 {
		t.Errorf("received %v, want attempt 2", got)
	}
}

// TestSnapshotOfAnOldMessage: a snapshot that would live for less than an hour is refused.
func TestSnapshotOfAnOldMessage(t *testing.T) {
	t.Parallel()
	w := plain(t)
	w.publish("", "m")
	w.clock.Advance(7*24*time.Hour - time.Hour)
	w.snapshot(snapshotName, subscriptionName)
	w.clock.Advance(time.Nanosecond)
	_, err := w.CreateSnapshot(w.context(), &pubsubpb.CreateSnapshotRequest{Name: snapshotName + "2", Subscription: subscriptionName})
	wantCode(t, err, codes.FailedPrecondition)
}

// TestSeekAfterTheEndOfRetainAcked: a subscription that no longer keeps acknowledged messages has none for a seek, and they leave
// the memory.
func TestSeekAfterTheEndOfRetainAcked(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "A"} {
		w := newWorld(t, localpubsub.Options{})
		w.subscribe(&pubsubpb.Subscription{RetainAckedMessages: true, EnableMessageOrdering: true})
		w.publish(key, "a", "b", "c")
		got := w.pull()
		w.ack(got[0], got[2])
		_, err := w.UpdateSubscription(w.context(), &pubsubpb.UpdateSubscriptionRequest{
			Subscription: &pubsubpb.Subscription{Name: subscriptionName},
			UpdateMask:   &fieldmaskpb.FieldMask{Paths: []string{"retain_acked_messages"}},
		})
		wantCode(t, err, codes.OK)
		w.ack(got[1])
		w.publish(key, "d")
		w.seekTo(worldTime)
		wantTexts(t, w.pull(), "d")
	}
}

// TestSeekToASnapshotOfOldMessages: a snapshot keeps messages for a week. A subscription drops those past its own retention,
// also right after a seek.
func TestSeekToASnapshotOfOldMessages(t *testing.T) {
	t.Parallel()
	w := plain(t)
	const short = "projects/p/subscriptions/short"
	w.subscribe(&pubsubpb.Subscription{Name: short, MessageRetentionDuration: durationpb.New(10 * time.Minute)})
	w.publish("", "old")
	w.snapshot(snapshotName, subscriptionName)
	w.clock.Advance(5 * time.Minute)
	w.publish("", "new")
	w.clock.Advance(5 * time.Minute)
	for name, want := range map[string]int{short: 1, subscriptionName: 2} {
		_, err := w.Seek(w.context(), &pubsubpb.SeekRequest{
			Subscription: name, Target: &pubsubpb.SeekRequest_Snapshot{Snapshot: snapshotName},
		})
		wantCode(t, err, codes.OK)
		if got := w.backlogOf(name); got != want {
			t.Errorf("%s has %d messages after the seek, want %d", name, got, want)
		}
	}
}
