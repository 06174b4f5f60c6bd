package localpubsub_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/localpubsub"
)

// victimFile makes the test binary a server that keeps its state in a file and
// runs until it is killed.
const victimFile = "LOCALPUBSUB_TEST_VICTIM_FILE"

func serveVictim(file string) int {
	server, err := localpubsub.Start(localpubsub.Options{File: file})
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	server.SetSlack(mebi / 4)
	fmt.Fprintln(os.Stdout, server.Addr())
	<-context.Background().Done()
	return 0
}

// startVictim returns the server's process and its address, which is the first
// word of its output.
func startVictim(t *testing.T, file string) (*exec.Cmd, string) {
	t.Helper()
	victim := exec.Command(os.Args[0])
	victim.Env = append(os.Environ(), victimFile+"="+file)
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(victim) })
	var addr string
	if _, err := fmt.Fscan(out, &addr); err != nil {
		t.Fatal(err)
	}
	return victim, addr
}

func kill(victim *exec.Cmd) {
	_ = victim.Process.Kill() // fails if it was killed before
	_ = victim.Wait()         // likewise; otherwise it reports "killed"
}

// ledger records the answers that the clients of a server got.
type ledger struct {
	t *testing.T

	mu       sync.Mutex
	accepted map[string]string // id to key
	trying   map[string]bool   // acknowledged, perhaps without an answer
	settled  map[string]bool   // acknowledged and answered
	last     map[string]string // id by key, since the last restart
	enough   chan struct{}     // closed when enough messages are accepted
	limit    int
}

// Kills during publishing and acknowledging lose nothing that was answered.
// Accepted messages are delivered, acknowledged messages are not delivered
// again, each key keeps its order, and the configuration is kept. The file is
// rewritten all the time.
func TestKill(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "events")
	l := &ledger{t: t, accepted: map[string]string{}, trying: map[string]bool{}, settled: map[string]bool{}}
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		victim, addr := startVictim(t, file)
		w := connect(t, addr)
		if round == 0 {
			configure(w)
		}
		l.begin(600 + rand.IntN(300))
		l.load(w, victim)
	}
	_, addr := startVictim(t, file)
	w := connect(t, addr)
	checkConfigured(w)
	l.begin(0)
	if _, err := localpubsub.Start(localpubsub.Options{File: file}); err == nil {
		t.Error("a second process got the file")
	}
	for got := w.pull(); len(got) > 0; got = w.pull() {
		l.settle(w, got)
	}
	for id, key := range l.accepted {
		if !l.trying[id] {
			t.Errorf("%s of key %q is lost", id, key)
		}
	}
	t.Logf("%d messages accepted, %d acknowledged, %d kills", len(l.accepted), len(l.settled), rounds)
}

// load publishes and acknowledges until enough messages are accepted, and then
// kills the server.
func (l *ledger) load(w *world, victim *exec.Cmd) {
	var clients sync.WaitGroup
	for _, key := range []string{"", "A", "B", "C"} {
		clients.Go(func() { l.publish(w, key) })
	}
	clients.Go(func() {
		for {
			answer, err := w.Pull(w.context(), &pubsubpb.PullRequest{Subscription: subscriptionName, MaxMessages: 20})
			if err != nil || !l.settle(w, answer.GetReceivedMessages()) {
				return
			}
		}
	})
	select {
	case <-l.enough:
	case <-time.After(patience):
		l.t.Error("too little was accepted")
	}
	kill(victim)
	clients.Wait()
}

func (l *ledger) begin(limit int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.enough, l.limit = map[string]string{}, make(chan struct{}), len(l.accepted)+limit
}

func (l *ledger) publish(w *world, key string) {
	for {
		req := &pubsubpb.PublishRequest{Topic: topicName}
		for range 1 + rand.IntN(3) {
			req.Messages = append(req.Messages, &pubsubpb.PubsubMessage{Data: bytes.Repeat([]byte("x"), 2000), OrderingKey: key})
		}
		answer, err := w.Publish(w.context(), req)
		if err != nil {
			return
		}
		l.mu.Lock()
		for _, id := range answer.GetMessageIds() {
			if _, twice := l.accepted[id]; twice {
				l.t.Errorf("id %s was given twice", id)
			}
			l.accepted[id] = key
			if len(l.accepted) == l.limit {
				close(l.enough)
			}
		}
		l.mu.Unlock()
	}
}

// settle acknowledges the messages, and reports whether the server answered.
func (l *ledger) settle(w *world, messages []*pubsubpb.ReceivedMessage) bool {
	if len(messages) == 0 {
		return true
	}
	l.mu.Lock()
	for _, m := range messages {
		id, key := m.GetMessage().GetMessageId(), m.GetMessage().GetOrderingKey()
		if l.settled[id] {
			l.t.Errorf("%s of key %q came again after its acknowledgement was answered", id, key)
		}
		// All ids have the same length, so the order of their texts is that of
		// their numbers.
		if key != "" && id <= l.last[key] {
			l.t.Errorf("key %s: %s came after %s", key, id, l.last[key])
		}
		l.last[key], l.trying[id] = id, true
	}
	l.mu.Unlock()
	_, err := w.Acknowledge(w.context(), &pubsubpb.AcknowledgeRequest{Subscription: subscriptionName, AckIds: ackIDs(messages)})
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range messages {
		l.settled[m.GetMessage().GetMessageId()] = err == nil
	}
	return err == nil
}

var victimPolicy = &iampb.SetIamPolicyRequest{
	Resource: topicName,
	Policy:   &iampb.Policy{Bindings: []*iampb.Binding{{Role: "roles/pubsub.viewer", Members: []string{"user:a@example.com"}}}},
}

func configure(w *world) {
	w.t.Helper()
	w.subscribe(&pubsubpb.Subscription{EnableMessageOrdering: true, AckDeadlineSeconds: 600})
	_, topic := createTopic(w, &pubsubpb.Topic{Name: "projects/p/topics/other"})
	_, subscription := createSubscription(w, &pubsubpb.Subscription{Name: "projects/p/subscriptions/other", Topic: "projects/p/topics/other"})
	_, snapshot := w.CreateSnapshot(w.context(), &pubsubpb.CreateSnapshotRequest{
		Name: snapshotName("one"), Subscription: "projects/p/subscriptions/other",
	})
	_, schema := pubsubpb.NewSchemaServiceClient(w.conn).CreateSchema(w.context(), &pubsubpb.CreateSchemaRequest{
		Parent: "projects/p", SchemaId: "shape",
		Schema: &pubsubpb.Schema{Type: pubsubpb.Schema_PROTOCOL_BUFFER, Definition: `syntax = "proto3"; message M { string a = 1; }`},
	})
	_, policy := iampb.NewIAMPolicyClient(w.conn).SetIamPolicy(w.context(), victimPolicy)
	if err := errors.Join(topic, subscription, snapshot, schema, policy); err != nil {
		w.t.Fatal(err)
	}
}

func checkConfigured(w *world) {
	w.t.Helper()
	if _, err := w.GetSnapshot(w.context(), &pubsubpb.GetSnapshotRequest{Snapshot: snapshotName("one")}); err != nil {
		w.t.Error(err)
	}
	schema, err := pubsubpb.NewSchemaServiceClient(w.conn).GetSchema(w.context(), &pubsubpb.GetSchemaRequest{
		Name: "projects/p/schemas/shape", View: pubsubpb.SchemaView_FULL,
	})
	if err != nil || schema.GetDefinition() == "" {
		w.t.Errorf("schema %v: %v", schema, err)
	}
	policy, err := iampb.NewIAMPolicyClient(w.conn).GetIamPolicy(w.context(), &iampb.GetIamPolicyRequest{Resource: topicName})
	if err != nil || policy.GetBindings()[0].GetRole() != "roles/pubsub.viewer" {
		w.t.Errorf("policy %v: %v", policy, err)
	}
}
