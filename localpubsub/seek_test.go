package localpubsub_test

import (
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
