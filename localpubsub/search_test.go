package localpubsub

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/durationpb"
)

var searchDepth = flag.Int("depth", 4, "how many steps the histories of TestAllHistories have")

// TestAllHistories plays all histories of a few steps on a subscription with two streams, and compares each
// delivery with the documentation (model_test.go). A history that leads to a state that another has reached is
// not continued. After each history all messages are received and acknowledged: none may be lost or left over.
func TestAllHistories(t *testing.T) {
	t.Parallel()
	for _, c := range searchConfigs() {
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			states, histories := search(t, c, *searchDepth)
			t.Logf("%d states, %d histories", states, histories)
		})
	}
}

// A searchConfig is a configuration of the subscription.
type searchConfig struct {
	ordered, exactlyOnce, retry, retain, returned bool
	attempts                                      int32
	flow                                          int64
	keys                                          []string // of the messages that may be published
}

func (c searchConfig) name() string {
	return strings.ReplaceAll(fmt.Sprintf("%+v", c), " ", ",")
}

func searchConfigs() []searchConfig {
	two, mixed := []string{"A", "B"}, []string{"A", ""}
	return []searchConfig{
		{ordered: true, keys: two},
		{ordered: true, keys: two, flow: 1, retain: true},
		{ordered: true, keys: mixed, retry: true, attempts: 2},
		{ordered: true, keys: two, attempts: 2, flow: 2},
		{ordered: true, keys: two[:1], attempts: 2, retain: true},
		{ordered: true, keys: two, exactlyOnce: true, retry: true},
		{ordered: true, keys: mixed, exactlyOnce: true, attempts: 2, returned: true},
		{ordered: true, keys: two, returned: true, flow: 1},
		{keys: []string{""}, retry: true, attempts: 2, flow: 1},
		{keys: []string{""}, exactlyOnce: true, returned: true, retain: true},
		{keys: []string{""}, retain: true},
	}
}

// A searchStep is one call, or one event of the clock or of a connection.
type searchStep struct {
	what string
	n    int
}

var searchSteps = func() (all []searchStep) {
	for _, what := range []string{"publish", "wake", "close", "open"} {
		all = append(all, searchStep{what, 0}, searchStep{what, 1})
	}
	for _, what := range []string{"ack", "stale ack", "nack", "extend"} {
		for n := range maxSearched {
			all = append(all, searchStep{what, n})
		}
	}
	return append(all, searchStep{"pull", 1}, searchStep{"pull", 1000}, searchStep{"nack all", 0}, searchStep{"pass", 10},
		searchStep{"seek to the start", 0}, searchStep{"seek to the end", 0}, searchStep{"snapshot", 0}, searchStep{"seek to the snapshot", 0})
}()

// maxSearched is the number of messages of a history.
const maxSearched = 3

func search(t *testing.T, c searchConfig, depth int) (states, histories int) {
	t.Helper()
	seen := map[string]bool{}
	front := [][]searchStep{nil}
	for range depth {
		var next [][]searchStep
		for _, history := range front {
			for _, step := range searchSteps {
				longer := append(slices.Clip(history), step)
				played := playSearch(t, c, longer)
				if played == nil {
					continue
				}
				histories++
				if state := played.state(); !seen[state] {
					seen[state] = true
					next = append(next, longer)
					played.drain()
				}
				if len(played.complaints) > 0 {
					t.Fatalf("%v: %s", longer, played.complaints[0])
				}
			}
		}
		front = next
	}
	return len(seen), histories
}

// playSearch plays a history on a new server. It returns nil if the last step is not possible then.
func playSearch(t *testing.T, c searchConfig, history []searchStep) *searchRun {
	t.Helper()
	r := newSearchRun(c)
	for _, step := range history {
		if !r.step(step) {
			return nil
		}
		r.check()
	}
	return r
}

// A searchRun is a server without a port, whose methods are called directly, and the model to compare it with.
type searchRun struct {
	*model

	clock   *Clock
	server  *Server
	topic   *topic
	dead    *subscription
	sub     *subscription
	streams [2]*consumer
	running [2]bool // whether the stream has to look for messages
	taken   *snapshot
}

var searchStart = time.Unix(1_000_000, 0)

func newSearchRun(c searchConfig) *searchRun {
	clock := NewStillClock(searchStart)
	s := newServer(Options{Clock: clock, ReturnOnClose: c.returned})
	s.message.Store(0)
	r := &searchRun{model: newModel(c), clock: clock, server: s}
	r.topic = newTopic(s, &pubsubpb.Topic{Name: "projects/p/topics/events"})
	deadTopic := newTopic(s, &pubsubpb.Topic{Name: "projects/p/topics/dead"})
	config := &pubsubpb.Subscription{
		Name: "projects/p/subscriptions/events", AckDeadlineSeconds: 10, MessageRetentionDuration: durationpb.New(time.Hour),
		EnableMessageOrdering: c.ordered, EnableExactlyOnceDelivery: c.exactlyOnce, RetainAckedMessages: c.retain,
	}
	if c.retry {
		config.RetryPolicy = &pubsubpb.RetryPolicy{
			MinimumBackoff: durationpb.New(5 * time.Second), MaximumBackoff: durationpb.New(20 * time.Second),
		}
	}
	if c.attempts > 0 {
		config.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{DeadLetterTopic: deadTopic.name, MaxDeliveryAttempts: c.attempts}
	}
	deadConfig := &pubsubpb.Subscription{Name: "projects/p/subscriptions/dead", MessageRetentionDuration: durationpb.New(time.Hour)}
	var errs [4]error
	errs[0], errs[1] = s.topics.put(r.topic.name, r.topic), s.topics.put(deadTopic.name, deadTopic)
	r.sub, errs[2] = s.subscribe(r.topic, config)
	r.dead, errs[3] = s.subscribe(deadTopic, deadConfig)
	for _, err := range errs {
		r.must(err)
	}
	for i := range r.streams {
		r.open(i)
		r.wakeStream(i)
	}
	return r
}

func (r *searchRun) must(err error) {
	if err != nil {
		r.complainf("%v", err)
	}
}

func (r *searchRun) open(i int) {
	c := newConsumer(10 * time.Second)
	c.streaming, c.maxMessages = true, r.config.flow
	r.must(r.sub.open(c))
	r.streams[i], r.running[i] = c, true
}

// step does one step. It returns false if the step is not possible.
func (r *searchRun) step(s searchStep) bool {
	switch s.what {
	case "publish":
		return r.publish(s.n)
	case "wake":
		return r.wakeStream(s.n)
	case "close", "open":
		return r.connect(s)
	case "pull":
		r.pull(s.n)
	case "pass":
		r.pass(time.Duration(s.n) * time.Second)
	case "ack", "stale ack", "nack", "extend", "nack all":
		return r.answer(s)
	default:
		return r.seek(s.what)
	}
	return true
}

func (r *searchRun) publish(n int) bool {
	if len(r.fates) == maxSearched || n >= len(r.config.keys) {
		return false
	}
	key := r.config.keys[n]
	_, err := r.topic.publish([]*pubsubpb.PubsubMessage{{Data: []byte("m"), OrderingKey: key}})
	r.must(err)
	r.published(r.server.message.Load(), key)
	return true
}

// wakeStream lets a stream take one batch. Like a stream that is served, it continues until there is no batch,
// and then waits for a signal.
func (r *searchRun) wakeStream(i int) bool {
	c := r.streams[i]
	if c == nil || !r.pending(i) {
		return false
	}
	if !r.running[i] {
		<-c.work
	}
	batch, err := r.sub.batch(c)
	r.must(err)
	r.running[i] = len(batch) > 0
	r.deliveredAll(batch, c, r.clock.Now())
	return true
}

func (r *searchRun) pending(i int) bool {
	return r.streams[i] != nil && (r.running[i] || len(r.streams[i].work) > 0)
}

func (r *searchRun) connect(s searchStep) bool {
	if (r.streams[s.n] == nil) != (s.what == "open") {
		return false
	}
	if s.what == "open" {
		r.open(s.n)
		return true
	}
	r.sub.close(r.streams[s.n])
	r.closed(r.streams[s.n])
	r.streams[s.n], r.running[s.n] = nil, false
	return true
}

func (r *searchRun) pull(n int) []delivery {
	c := newConsumer(10 * time.Second)
	c.maxMessages = int64(n)
	r.must(r.sub.open(c))
	batch, err := r.sub.batch(c)
	r.must(err)
	r.sub.close(c)
	r.deliveredAll(batch, c, r.clock.Now())
	if len(batch) < n {
		r.complainDue(nil)
	}
	return batch
}

func (r *searchRun) pass(d time.Duration) {
	r.clock.Advance(d)
	r.passed(r.clock.Now())
}

func (r *searchRun) answer(s searchStep) bool {
	if s.what == "nack all" {
		ids := r.leasedIDs()
		if len(ids) < 2 {
			return false
		}
		failed, err := r.sub.modify(ids, 0)
		r.must(err)
		r.nackedAll(failed, r.clock.Now())
		return true
	}
	if s.n >= len(r.fates) {
		return false
	}
	f := r.fates[s.n]
	id := f.ackID
	if s.what == "stale ack" {
		id = f.staleID
	}
	if id == "" {
		return false
	}
	var failed failures
	var err error
	switch s.what {
	case "nack":
		failed, err = r.sub.modify([]string{id}, 0)
		r.nacked(f, failed, r.clock.Now())
	case "extend":
		failed, err = r.sub.modify([]string{id}, time.Minute)
		r.extended(f, failed, r.clock.Now().Add(time.Minute))
	default:
		failed, err = r.sub.acknowledge([]string{id})
		r.acknowledged(f, id, failed)
	}
	r.must(err)
	return true
}

func (r *searchRun) seek(what string) bool {
	none := func(*fate) bool { return false }
	switch what {
	case "snapshot":
		if r.taken != nil || len(r.fates) == 0 {
			return false
		}
		var err error
		r.taken, err = r.sub.capture("projects/p/snapshots/one", nil)
		r.must(err)
		r.captured()
	case "seek to the snapshot":
		if r.taken == nil {
			return false
		}
		r.must(r.sub.seekSnapshot(r.taken))
		captured := func(f *fate) bool { return f.captured }
		r.sought(captured, captured)
	case "seek to the end":
		r.must(r.sub.seekTime(r.clock.Now().Add(time.Second)))
		r.sought(none, none)
	default:
		r.must(r.sub.seekTime(searchStart))
		r.sought(none, func(*fate) bool { return true })
	}
	return true
}

// check compares the server with the model after a step.
func (r *searchRun) check() {
	for i, c := range r.streams {
		if c != nil && (c.messages != r.leasedBy(c) || r.config.flow > 0 && c.messages > r.config.flow) {
			r.complainf("stream %d counts %d messages, it has %d", i, c.messages, r.leasedBy(c))
		}
	}
	if !r.pending(0) && !r.pending(1) { // no stream looks for messages, so there must be none
		for _, c := range r.streams {
			if c != nil && c.room() {
				r.complainDue(c)
			}
		}
	}
	var dead []string
	for e := r.dead.log.first; e != nil; e = e.next {
		m, err := e.decode()
		r.must(err)
		dead = append(dead, m.GetAttributes()[deadLetterCount])
	}
	if want := r.deadCounts(); !slices.Equal(slices.Sorted(slices.Values(dead)), want) {
		r.complainf("dead letters after %v attempts, want %v", dead, want)
	}
}

// drain acknowledges all messages as an ordinary consumer. Nothing may be left of them.
func (r *searchRun) drain() {
	for i, c := range r.streams {
		if c != nil {
			r.connect(searchStep{"close", i})
		}
	}
	for range 3 * maxSearched {
		r.pass(2 * time.Minute) // longer than any lease or backoff
		batch := r.pull(1000)
		if len(batch) == 0 {
			continue // the messages wait for their backoff
		}
		var ids []string
		for _, d := range batch {
			ids = append(ids, d.id.String())
		}
		failed, err := r.sub.acknowledge(ids)
		r.must(err)
		for _, f := range r.fates {
			if slices.Contains(ids, f.ackID) {
				r.acknowledged(f, f.ackID, failed)
			}
		}
	}
	r.complainUnsettled()
	r.must(r.sub.leftover())
	r.dead.end(nil)
	if r.taken != nil {
		r.taken.end()
	}
	r.sub.end(nil)
	if n := r.server.store.bytes.Load(); n != 0 {
		r.complainf("%d bytes of no message are kept", n)
	}
}

// leftover returns an error if the subscription keeps anything of messages that are all acknowledged.
func (s *subscription) leftover() error {
	s.skim()
	if s.unacked() > 0 || len(s.keys) > 0 || len(s.delivered) > 0 || len(s.timers) > 0 || s.ready.len() > 0 || s.readyKeys.len() > 0 {
		return fmt.Errorf("left over: %d unacknowledged, %d keys, %d delivered, %d timers, %d and %d waiting",
			s.unacked(), len(s.keys), len(s.delivered), len(s.timers), s.ready.len(), s.readyKeys.len())
	}
	if !s.retainAcked && s.log.first != nil {
		return fmt.Errorf("left over: message %d", s.log.first.id)
	}
	return nil
}

// state describes the whole state in which the run is.
func (r *searchRun) state() string {
	var b strings.Builder
	now := r.clock.Now()
	fmt.Fprintln(&b, now.Sub(searchStart) > 0, r.sub.turn%2, r.running, r.taken != nil)
	for e := r.sub.log.first; e != nil; e = e.next {
		fmt.Fprint(&b, e.id, e.state, e.failures, r.nameOf(e.consumer), r.sub.current(ackID{0, e.id, e.serial}) != nil, " ")
		if e.timer >= 0 {
			fmt.Fprint(&b, time.Unix(0, e.deadline).Sub(now))
		}
		if q := e.queue; q != nil {
			fmt.Fprint(&b, q.cursor == e, q.outstanding, r.nameOf(q.consumer), q.line == &r.sub.readyKeys, q.line == nil)
		}
	}
	for i := range r.sub.ready.len() {
		fmt.Fprint(&b, " ", r.sub.ready.at(i).state)
		if m := r.sub.ready.at(i).message; m != nil {
			fmt.Fprint(&b, m.id)
		}
	}
	lines := []*fifo[*keyQueue]{&r.sub.readyKeys}
	for _, c := range r.streams {
		if c != nil {
			fmt.Fprint(&b, " c", len(c.work), c.othersFirst, c.messages)
			lines = append(lines, &c.keys)
		}
	}
	for _, line := range lines {
		fmt.Fprint(&b, " l")
		for i := range line.len() {
			q := line.at(i)
			fmt.Fprint(&b, q.key, q.line == line, r.sub.keys[q.key] == q)
		}
	}
	r.describe(&b, now, r.nameOf)
	return b.String()
}

func (r *searchRun) nameOf(c *consumer) string {
	switch {
	case c == nil:
		return "-"
	case c == r.streams[0]:
		return "s0"
	case c == r.streams[1]:
		return "s1"
	case c.streaming:
		return "closed"
	}
	return "pull"
}
