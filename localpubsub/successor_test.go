package localpubsub

import (
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

const (
	racedTopic        = "projects/p/topics/raced"
	racedSubscription = "projects/p/subscriptions/raced"
)

// racing returns a server with a topic and a subscription.
func racing(t *testing.T, config *pubsubpb.Subscription) (*Server, subscriber) {
	t.Helper()
	s, err := Start(Options{Clock: NewStillClock(time.Unix(1_000_000, 0))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := (publisher{Server: s}).CreateTopic(t.Context(), &pubsubpb.Topic{Name: racedTopic}); err != nil {
		t.Fatal(err)
	}
	config.Name, config.Topic = racedSubscription, racedTopic
	calls := subscriber{Server: s}
	if _, err := calls.CreateSubscription(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	return s, calls
}

// TestExpiryDeletesNoSuccessor: a subscription expires. Before the expiry deletes it, a client deletes it and creates another
// one with its name.
func TestExpiryDeletesNoSuccessor(t *testing.T) {
	t.Parallel()
	config := &pubsubpb.Subscription{}
	s, calls := racing(t, config)
	old, err := s.subscription(racedSubscription)
	if err != nil {
		t.Fatal(err)
	}
	old.lock()
	old.expireUnused(s.now().Add(old.ttl))
	expiry := old.later
	old.later = nil
	old.unlock()
	if len(expiry) != 1 {
		t.Fatalf("the subscription does not expire after %s", old.ttl)
	}
	if _, err := calls.DeleteSubscription(t.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: racedSubscription}); err != nil {
		t.Fatal(err)
	}
	if _, err := calls.CreateSubscription(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	expiry[0]()
	if _, err := s.subscription(racedSubscription); err != nil {
		t.Errorf("the new subscription is gone: %v", err)
	}
}

// TestAnExpiredSnapshotDeletesNoSuccessor is the same for a snapshot.
func TestAnExpiredSnapshotDeletesNoSuccessor(t *testing.T) {
	t.Parallel()
	s, calls := racing(t, &pubsubpb.Subscription{})
	create := func() {
		t.Helper()
		const name = "projects/p/snapshots/raced"
		if _, err := calls.CreateSnapshot(t.Context(), &pubsubpb.CreateSnapshotRequest{Name: name, Subscription: racedSubscription}); err != nil {
			t.Fatal(err)
		}
	}
	create()
	old, err := s.snapshot("projects/p/snapshots/raced")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := calls.DeleteSnapshot(t.Context(), &pubsubpb.DeleteSnapshotRequest{Snapshot: old.name}); err != nil {
		t.Fatal(err)
	}
	create()
	old.alarm.ring() // as if it had been due before the delete
	if _, err := s.snapshot(old.name); err != nil {
		t.Errorf("the new snapshot is gone: %v", err)
	}
}
