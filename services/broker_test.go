package services_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/internal/history"
	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/internal/topics"
	"example.com/lockstep/localpubsub/peer"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
)

// testBroker is a local Pub/Sub that serves the projects of several tests. The tests
// publish to it directly, so that its messages are exactly the test's.
type testBroker struct {
	kind       broker.Kind
	addr       string
	stop       func()
	publisher  pubsubpb.PublisherClient
	subscriber pubsubpb.SubscriberClient
}

// kinds are the brokers of the stories: see startBroker.
var kinds = []struct {
	name string
	kind broker.Kind
}{
	{"emulator", broker.Official},
	{"local", broker.Local},
}

// onEachKind runs test with each kind of broker.
func onEachKind(t *testing.T, test func(t *testing.T, kind broker.Kind)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { test(t, k.kind) })
	}
}

// startBroker skips the test if the machine does not have this kind. The official emulator takes
// as much of a processor as the pair: LOCKSTEP_FULL=1 tests with it, in .ci/full.
func startBroker(t testing.TB, kind broker.Kind) *testBroker {
	t.Helper()
	if kind == broker.Official && os.Getenv("LOCKSTEP_FULL") == "" {
		t.Skip("LOCKSTEP_FULL=1 takes the official emulator as a second opinion")
	}
	b := &testBroker{kind: kind, addr: porttest.Addr(t)}
	b.start(t)
	b.dial(t)
	return b
}

// sharedBroker is the broker that services of this process use. It serves other tests,
// too, and has no stop.
func sharedBroker(t testing.TB) *testBroker {
	t.Helper()
	b := &testBroker{addr: shared.Addr()}
	b.dial(t)
	return b
}

func (b *testBroker) dial(t testing.TB) {
	t.Helper()
	conn, err := grpc.NewClient(b.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	b.publisher, b.subscriber = pubsubpb.NewPublisherClient(conn), pubsubpb.NewSubscriberClient(conn)
}

// start also starts the broker again after stop: at the same address, and without its
// earlier topics and messages.
func (b *testBroker) start(t testing.TB) {
	t.Helper()
	server, err := broker.Start(t.Context(), broker.Options{Kind: b.kind, Addr: b.addr})
	if errors.Is(err, peer.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.stop = sync.OnceFunc(func() { b.end(t, server) })
	t.Cleanup(b.stop)
}

// end stops a broker. On a busy machine the emulator's Java VM may not end within its grace
// period, and is killed then.
func (b *testBroker) end(t testing.TB, server *broker.Server) {
	t.Helper()
	switch err := server.Close(); {
	case err != nil && b.kind == broker.Official:
		t.Log(err)
	case err != nil:
		t.Error(err)
	}
}

// expireLeases moves the clock of the repository's own broker by a minute: the messages
// that a killed subscriber holds come again at once.
func (b *testBroker) expireLeases(t testing.TB) {
	t.Helper()
	res, err := http.Post("http://"+b.addr+"/control/advance", "application/json", strings.NewReader(`{"by":"1m0s"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		t.Fatalf("advance the broker's clock: %s", res.Status)
	}
}

func (b *testBroker) provision(t testing.TB, project string) {
	t.Helper()
	var err error
	if !await(t.Context(), func() bool { // a busy machine is slow to connect
		_, err = broker.Provision(t.Context(), b.addr, project)
		return err == nil
	}) {
		t.Fatal(err)
	}
}

// publish sends messages to video.events in the order given.
func (w *world) publish(t testing.TB, messages ...*pubsubpb.PubsubMessage) {
	t.Helper()
	w.publishTo(t, topics.Video, messages...)
}

func (w *world) publishTo(t testing.TB, topic string, messages ...*pubsubpb.PubsubMessage) {
	t.Helper()
	_, err := w.broker.publisher.Publish(t.Context(), &pubsubpb.PublishRequest{
		Topic: "projects/" + w.project + "/topics/" + topic, Messages: messages,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// unordered is e's message without its ordering key: the broker may deliver it at once,
// while other messages of its video are still on the way.
func unordered(e eventing.Event) *pubsubpb.PubsubMessage {
	m := e.Message()
	m.OrderingKey = ""
	return m
}

// pull takes and acknowledges the messages that the subscription has ready.
func (w *world) pull(ctx context.Context, subscription string) ([]*pubsubpb.PubsubMessage, error) {
	name := "projects/" + w.project + "/subscriptions/" + subscription
	res, err := w.broker.subscriber.Pull(ctx, &pubsubpb.PullRequest{
		Subscription: name, MaxMessages: 1000,
		ReturnImmediately: true, //nolint:staticcheck // a Pull cut off while it waits takes messages with it on the emulator
	})
	if err != nil || len(res.ReceivedMessages) == 0 {
		return nil, err
	}
	var messages []*pubsubpb.PubsubMessage
	var acks []string
	for _, m := range res.ReceivedMessages {
		messages, acks = append(messages, m.Message), append(acks, m.AckId)
	}
	_, err = w.broker.subscriber.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: name, AckIds: acks})
	return messages, err
}

// recorder is a subscriber of its own on video.events. Its subscription is
// ordered, so it shows each video's messages as the broker took them.
type recorder struct {
	mu        sync.Mutex
	published []history.Record
}

// record begins before the first event and ends with the test.
func (w *world) record(t testing.TB) *recorder {
	t.Helper()
	const name = "recorder"
	_, err := w.broker.subscriber.CreateSubscription(t.Context(), &pubsubpb.Subscription{
		Name:                  "projects/" + w.project + "/subscriptions/" + name,
		Topic:                 "projects/" + w.project + "/topics/" + topics.Video,
		EnableMessageOrdering: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		for backoff.Sleep(ctx, glance, nil) {
			messages, err := w.pull(ctx, name)
			if err != nil && ctx.Err() == nil {
				t.Errorf("recorder: %v", err)
				return
			}
			r.add(messages)
		}
	})
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	return r
}

func (r *recorder) add(messages []*pubsubpb.PubsubMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range messages {
		// Text that is no number gives 0, and no event has that version.
		version, _ := strconv.ParseInt(m.Attributes[eventing.AttrVersion], 10, 64)
		epoch, _ := strconv.ParseInt(m.Attributes[eventing.AttrEpoch], 10, 64)
		r.published = append(r.published, history.Record{
			Kind: history.Publish, Process: "broker", At: m.PublishTime.AsTime(), Aggregate: m.OrderingKey,
			Epoch: epoch, Version: version, Event: m.Attributes[eventing.AttrEventID],
		})
	}
}

func (r *recorder) seen() []history.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.published)
}

// has reports whether e was published.
func (r *recorder) has(e eventing.Event) func() bool {
	return func() bool {
		return slices.ContainsFunc(r.seen(), func(r history.Record) bool { return r.Event == e.ID.String() })
	}
}

// recorderShowsThePublishOrder checks the premise of the crash test: the recorder sees
// messages in the order of publishing.
func recorderShowsThePublishOrder(t *testing.T, w *world) {
	r := w.record(t)
	want := []int64{1, 3, 2, 3, 4}
	for _, v := range want {
		e := eventing.Event{
			ID: uuid.New(), AggregateType: "video", AggregateID: "v", Type: "VideoUpdated",
			Version: v, SchemaVersion: 1, OccurredAt: time.Now(), Epoch: eventing.FirstEpoch,
		}
		w.publish(t, e.Message())
	}
	eventually(t, "all messages are recorded", func() bool { return len(r.seen()) == len(want) })
	for i, s := range r.seen() {
		if s.Version != want[i] || s.Aggregate != "v" {
			t.Errorf("message %d is version %d of %q, want version %d", i, s.Version, s.Aggregate, want[i])
		}
	}
}
