package localpubsub

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/localpubsub/internal/resource"
)

func TestFifo(t *testing.T) {
	t.Parallel()
	var f fifo[int]
	var want []int
	for i := range 1000 {
		f.push(i)
		want = append(want, i)
		if i%3 == 0 {
			if got := f.pop(); got != want[0] {
				t.Fatalf("popped %d, want %d", got, want[0])
			}
			want = want[1:]
		}
	}
	f.promote(5)
	want[0], want[5] = want[5], want[0]
	var got []int
	for f.len() > 0 {
		got = append(got, f.pop())
	}
	if !slices.Equal(got, want) {
		t.Errorf("the rest is %v, want %v", got, want)
	}
	if f.ring != nil {
		t.Error("an empty queue keeps its ring")
	}
}

func TestAlarmsRingInOrder(t *testing.T) {
	t.Parallel()
	c := NewStillClock(time.Unix(0, 0))
	var rang []string
	ring := func(name string) *alarm { return c.newAlarm(func() { rang = append(rang, name) }) }
	late, early, stopped := ring("late"), ring("early"), ring("stopped")
	again := c.newAlarm(nil)
	again.ring = func() {
		rang = append(rang, "again")
		if len(rang) < 4 {
			again.set(c.Now())
		}
	}
	late.set(time.Unix(3, 0))
	stopped.set(time.Unix(2, 0))
	early.set(time.Unix(5, 0))
	early.set(time.Unix(1, 0))
	again.set(time.Unix(2, 0))
	stopped.stop()
	c.Advance(999 * time.Millisecond)
	if rang != nil {
		t.Errorf("%v rang too early", rang)
	}
	c.Advance(2001 * time.Millisecond)
	if want := []string{"early", "again", "late", "again"}; !slices.Equal(rang, want) {
		t.Errorf("%v rang, want %v", rang, want)
	}
}

func TestAlarmRingsOnARunningClock(t *testing.T) {
	t.Parallel()
	c := NewClock()
	rang := make(chan string, 2)
	c.newAlarm(func() { rang <- "far" }).set(c.Now().Add(time.Hour))
	c.newAlarm(func() { rang <- "near" }).set(c.Now().Add(time.Millisecond))
	if got := <-rang; got != "near" {
		t.Errorf("%s rang first", got)
	}
	c.Advance(time.Hour)
	if got := <-rang; got != "far" {
		t.Errorf("%s rang", got)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	var s store
	s.limit = 1000
	m := &message{raw: make([]byte, 900), in: &s}
	m.keep()
	m.keep()
	if !s.full() {
		t.Errorf("%d bytes are kept", s.bytes.Load())
	}
	m.drop()
	m.drop()
	if s.full() || s.bytes.Load() != 0 {
		t.Errorf("%d bytes are kept of none", s.bytes.Load())
	}
}

// A topic may be deleted after a call has found it. Nothing is attached to it then.
func TestDeletedTopicTakesNothing(t *testing.T) {
	t.Parallel()
	s := newServer(Options{Clock: NewStillClock(time.Unix(1_000_000, 0))})
	const late = "projects/p/subscriptions/late"
	deleted := newTopic(s, &pubsubpb.Topic{Name: "projects/p/topics/events"})
	deleted.end()
	if _, err := s.subscribe(deleted, &pubsubpb.Subscription{Name: late}); status.Code(err) != codes.NotFound {
		t.Errorf("subscribe = %v, want NOT_FOUND", err)
	}
	if _, err := s.subscription(late); status.Code(err) != codes.NotFound {
		t.Errorf("the refused subscription exists: %v", err)
	}
}

// On a busy machine the alarm rings late. An acknowledgement or a change of the deadline is late
// after the deadline nonetheless.
func TestDeadlineHoldsBeforeTheAlarm(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]func(*subscription, []string) (failures, error){
		"acknowledge": (*subscription).acknowledge,
		"modify":      func(s *subscription, ids []string) (failures, error) { return s.modify(ids, time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := NewStillClock(time.Unix(1_000_000, 0))
			s := newServer(Options{Clock: clock})
			config := &pubsubpb.Subscription{Name: "projects/p/subscriptions/events", EnableExactlyOnceDelivery: true}
			if err := resource.CheckSubscription(config); err != nil {
				t.Fatal(err)
			}
			sub := newSubscription(s, newTopic(s, &pubsubpb.Topic{Name: "projects/p/topics/events"}), config, nil)
			sub.add(&message{id: 1, at: clock.Now().UnixNano(), in: &s.store})
			c := newConsumer(10 * time.Second)
			sub.join(c)
			batch, err := sub.batch(c)
			if err != nil || len(batch) != 1 {
				t.Fatal(batch, err)
			}
			clock.mu.Lock()
			clock.now = clock.now.Add(10 * time.Second) // without ringing the alarms
			clock.mu.Unlock()
			failed, err := settle(sub, []string{batch[0].id.String()})
			if err != nil || len(failed) != 1 {
				t.Errorf("%v, %v, want a refusal", failed, err)
			}
		})
	}
}

// A wait that doubles without end would overflow, and the message would come again at once.
func TestBackoffStaysAtItsMaximum(t *testing.T) {
	t.Parallel()
	s := &subscription{settings: settings{minBackoff: time.Second, maxBackoff: 7 * time.Second}}
	for _, failures := range []int32{4, 63, 64, 65, 100} {
		if got := s.backoff(failures); got != 7*time.Second {
			t.Errorf("after %d failures: %s, want 7s", failures, got)
		}
	}
}

func TestLimitsOfAPublish(t *testing.T) {
	t.Parallel()
	with := func(key, value string) *pubsubpb.PubsubMessage {
		return &pubsubpb.PubsubMessage{Attributes: map[string]string{key: value}}
	}
	largest := &pubsubpb.PubsubMessage{Data: make([]byte, maxPublish-5)} // five more bytes are its field and its length
	larger := &pubsubpb.PubsubMessage{Data: make([]byte, maxPublish-4)}
	for name, test := range map[string]struct {
		m     *pubsubpb.PubsubMessage
		valid bool
	}{
		"largest": {largest, true}, "larger": {larger, false},
		"no attribute key": {with("", "v"), false}, "reserved": {with("google", "v"), false},
		"of a client library": {with("googclient_traceparent", "v"), true},
		"longest key":         {with(strings.Repeat("k", 256), "v"), true}, "longer key": {with(strings.Repeat("k", 257), "v"), false},
		"longest ordering key": {&pubsubpb.PubsubMessage{Data: []byte("m"), OrderingKey: strings.Repeat("k", 1024)}, true},
		"longer ordering key":  {&pubsubpb.PubsubMessage{Data: []byte("m"), OrderingKey: strings.Repeat("k", 1025)}, false},
		"longest value":        {with("k", strings.Repeat("v", 1024)), true}, "longer value": {with("k", strings.Repeat("v", 1025)), false},
	} {
		err := checkMessages([]*pubsubpb.PubsubMessage{test.m})
		if (err == nil) != test.valid || err != nil && status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want valid: %t", name, err, test.valid)
		}
	}
}

// The machine's clock may be set back. Publish times do not follow it.
func TestPublishTimesNeverGoBack(t *testing.T) {
	t.Parallel()
	clock := NewStillClock(time.Unix(1_000_000, 0))
	to := newTopic(newServer(Options{Clock: clock}), &pubsubpb.Topic{
		Name: "projects/p/topics/events", MessageRetentionDuration: durationpb.New(time.Hour),
	})
	for range 2 {
		if _, err := to.publish([]*pubsubpb.PubsubMessage{{Data: []byte("m")}}); err != nil {
			t.Fatal(err)
		}
		clock.now = clock.now.Add(-time.Minute)
	}
	if first, second := to.retained.at(0).at, to.retained.at(1).at; second < first {
		t.Errorf("published at %d and then at %d", first, second)
	}
	to.end()
	if n := to.server.store.bytes.Load(); n != 0 {
		t.Errorf("a deleted topic keeps %d bytes", n)
	}
}

// Several consumers share a burst, because none of them takes a large batch.
func TestBatchesAreSmallForSeveralConsumers(t *testing.T) {
	t.Parallel()
	s := newServer(Options{Clock: NewStillClock(time.Unix(1_000_000, 0))})
	sub := newSubscription(s, newTopic(s, &pubsubpb.Topic{}), &pubsubpb.Subscription{
		Name: "projects/p/subscriptions/events", MessageRetentionDuration: durationpb.New(time.Hour),
	}, nil)
	sub.addNumbered(1, 200)
	for _, want := range []int{199, 50} {
		sub.join(newConsumer(10 * time.Second))
		if batch, err := sub.batch(sub.consumers[0]); err != nil || len(batch) != want {
			t.Errorf("%d consumers: a batch of %d, %v, want %d", len(sub.consumers), len(batch), err, want)
		}
		sub.addNumbered(200, 300)
	}
}

// A client that sends requests and reads no response does not fill the memory.
func TestUnreadResponsesAreBounded(t *testing.T) {
	t.Parallel()
	s := &stream{consumer: newConsumer(10 * time.Second)}
	for name, send := range map[string]func() error{
		"keep-alives": s.ping, "confirmations": func() error { return s.reply(new(pubsubpb.StreamingPullResponse)) },
	} {
		for range maxReplies {
			if err := send(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if err := send(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s beyond the limit: %v, want RESOURCE_EXHAUSTED", name, err)
		}
	}
}

// A call that publishes dead letters holds back the next one until it is done. Otherwise the later dead letters of a key could
// overtake those that another call has taken and not yet published.
func TestDeadLettersAreForwardedByOneCall(t *testing.T) {
	t.Parallel()
	s := newServer(Options{Clock: NewStillClock(time.Unix(1_000_000, 0))})
	dead := newTopic(s, &pubsubpb.Topic{Name: "projects/p/topics/dead", MessageRetentionDuration: durationpb.New(time.Hour)})
	if err := s.topics.put(dead.name, dead); err != nil {
		t.Fatal(err)
	}
	config := &pubsubpb.Subscription{
		Name: "projects/p/subscriptions/events", EnableMessageOrdering: true, AckDeadlineSeconds: 10,
		MessageRetentionDuration: durationpb.New(time.Hour),
		DeadLetterPolicy:         &pubsubpb.DeadLetterPolicy{DeadLetterTopic: dead.name, MaxDeliveryAttempts: 1},
	}
	sub := newSubscription(s, newTopic(s, &pubsubpb.Topic{Name: "projects/p/topics/events"}), config, nil)
	sub.add(&message{id: 1, at: s.now().UnixNano(), key: "k", in: &s.store})
	c := newConsumer(10 * time.Second)
	sub.join(c)
	batch, err := sub.batch(c)
	if err != nil || len(batch) != 1 {
		t.Fatal(batch, err)
	}
	dead.mu.Lock() // no dead letter can be published
	var nack sync.WaitGroup
	nack.Go(func() { _, _ = sub.modify([]string{batch[0].id.String()}, 0) })
	for taken := false; !taken; runtime.Gosched() {
		sub.lock()
		taken = len(sub.delivered) == 0 && len(sub.dead) == 0
		sub.unlock()
	}
	if sub.forwarding.TryLock() {
		sub.forwarding.Unlock()
		t.Error("another call may publish while the first one has a dead letter in hand")
	}
	dead.mu.Unlock()
	nack.Wait()
	if n := dead.retained.len(); n != 1 {
		t.Errorf("%d dead letters are published, want 1", n)
	}
}
