package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/internal/pgtest/pairtest"
)

// The events of a run reach a subscriber that comes after the run has ended and
// after an earlier server on the file was killed.
func TestEventsSurviveInAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "events")
	const project = "projects/lockstep-local"
	late := project + "/subscriptions/late"

	addr, server := servePubSub(t, "--file", file)
	if code := command(t, []string{"PUBSUB_EMULATOR_HOST=" + addr}, "provision").run(t); code != 0 {
		t.Fatalf("provision: exit code %d", code)
	}
	if _, err := subscriberAt(t, addr).CreateSubscription(t.Context(), &pubsubpb.Subscription{
		Name: late, Topic: project + "/topics/video.events",
	}); err != nil {
		t.Fatal(err)
	}
	second := command(t, nil, "pubsub", "--addr", "127.0.0.1:0", "--file", file)
	if code := second.run(t); code != 1 || !strings.Contains(second.stderr.String(), file) {
		t.Errorf("a second one on the file: exit code %d, stderr %q", code, second.stderr.String())
	}
	server.signal(t, os.Kill)
	_ = server.cmd.Wait() // "killed"

	w := walkOnce(t, []string{"DATABASE_URL=" + pairtest.New(t).Admin}, "--pubsub-file", file)
	if !strings.Contains(w.PubSub, file) {
		t.Errorf("the report does not say where events are kept: %q", w.PubSub)
	}

	addr, _ = servePubSub(t, "--file", file)
	answer, err := subscriberAt(t, addr).Pull(t.Context(), &pubsubpb.PullRequest{Subscription: late, MaxMessages: 10})
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range answer.GetReceivedMessages() {
		if got := m.GetMessage().GetAttributes()["event_id"]; i >= len(w.Steps) || got != w.Steps[i].EventID.String() {
			t.Errorf("message %d is event %s, want that of the walk-through", i, got)
		}
	}
	if n := len(answer.GetReceivedMessages()); n != 3 {
		t.Errorf("%d messages, want the 3 of the walk-through", n)
	}
}

func subscriberAt(t testing.TB, addr string) pubsubpb.SubscriberClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return pubsubpb.NewSubscriberClient(conn)
}

func TestFileIsNotForTheUsersOwnPubSub(t *testing.T) {
	t.Parallel()
	l := command(t, []string{"PUBSUB_EMULATOR_HOST=127.0.0.1:1"}, "--pubsub-file", "events")
	if code := l.run(t); code != 2 || !strings.Contains(l.stderr.String(), "PUBSUB_EMULATOR_HOST") {
		t.Errorf("exit code %d, stderr %q", code, l.stderr.String())
	}
}
