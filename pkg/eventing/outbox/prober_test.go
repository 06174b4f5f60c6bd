package outbox

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const otherTopic = topic + ".other"

// tracedClaims traces the statements that claim candidates for probes, and may delay them.
type tracedClaims struct {
	seen atomic.Int64
	// started receives a signal for each statement, if it waits. While the lock is held, none
	// continues.
	started chan struct{}
	delay   sync.RWMutex
}

func (l *tracedClaims) trace(_ context.Context, _ *pgx.Conn, trip pgtest.Trip) {
	for _, sent := range trip {
		if len(sent.Args) > 4 && sent.Args[4] == candidatesPerProbe { // a claim's limit of events
			l.seen.Add(1)
			signal(l.started)
			l.delay.RLock()
			l.delay.RUnlock() //nolint:staticcheck,gocritic // it only waits for the writer
		}
	}
}

// newTopicsBench has two topics, for aggregate types video and engagement.
func newTopicsBench(t *testing.T) (*bench, *tracedClaims) {
	t.Helper()
	b := newBenchOn(t, pgtest.New(t))
	b.topics["engagement"] = otherTopic
	if _, err := b.client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: otherTopic}); err != nil {
		t.Fatal(err)
	}
	config, l := b.db.Config(), &tracedClaims{started: make(chan struct{}, 1)}
	config.ConnConfig.Tracer = &pgtest.Tracer{Before: l.trace}
	db := pgtest.Open(t, config)
	b.db = db
	return b, l
}

// engagement is version 1 of an aggregate of the other topic.
func engagement(aggregate string) eventing.Event {
	e := event(aggregate, 1)
	e.AggregateType = "engagement"
	return e
}

// The search for an event to probe a missing topic with hangs. A new event of another topic
// leaves, and so do two others: one with the lease of a dead relay, and one with a retry
// that is due.
func TestAProbeThatHangsHoldsUpNoOtherTopic(t *testing.T) {
	t.Parallel()
	b, l := newTopicsBench(t)
	b.setFault(func(ctx context.Context, req *pubsubpb.PublishRequest, send func(context.Context) error) error {
		if req.Topic == topic {
			return status.Error(codes.NotFound, "no such topic")
		}
		return send(ctx)
	})
	b.publishedRows(t, 40_000) // the sweep takes more than the test's time for them
	if err := b.appendAll(t, engagement("retried"), engagement("orphan")); err != nil {
		t.Fatal(err)
	}
	b.exec(t, `UPDATE outbox SET next_retry_at = now() + interval '4 min' WHERE aggregate_type = 'engagement'`)
	l.delay.Lock()
	r := b.start(t)
	goOn := sync.OnceFunc(l.delay.Unlock)
	t.Cleanup(goOn)
	b.append(t, "a", 1, 1)
	<-l.started
	if err := b.appendAll(t, engagement("new")); err != nil {
		t.Fatal(err)
	}
	r.Wake()
	b.eventually(t, 0, unpublished+` AND aggregate_id = 'new'`)
	b.exec(t, `UPDATE outbox SET next_retry_at = now() WHERE aggregate_id = 'retried'`)
	b.exec(t, `UPDATE outbox SET next_retry_at = NULL, lock_token = 'dead', locked_at = now() - interval '1 min' WHERE aggregate_id = 'orphan'`)
	b.exec(t, `INSERT INTO outbox_relays (token, low, seen_at) VALUES ('dead', $1::text::pg_snapshot, '-infinity')`, b.since+":"+b.since+":")
	b.eventually(t, 0, unpublished+` AND aggregate_type = 'engagement'`)
	if n := r.failures.Load(); n != 0 || l.seen.Load() != 1 {
		t.Errorf("%d failures of the database in a row, %d looks for a probe", n, l.seen.Load())
	}
	goOn()
	b.setFault(nil)
	b.eventually(t, 0, unpublished)
}

// outAndDue has a topic be out, and a probe of it due.
func outAndDue(c *topicPause) {
	c.pause(causeOutage)
	c.postpone(c.state, 0)
}

// joined returns a relay that owes nothing.
func (b *bench) registered(t *testing.T) (*Relay, chan *leasedBatch) {
	t.Helper()
	r, claimed := b.newRelay(t), make(chan *leasedBatch, maxEvents)
	var s claimSchedule
	r.step(t.Context(), &s, claimed)
	r.scanDue(t, claimed)
	return r, claimed
}

// searchThrough probes the paused topics until a probe scan has ended: it has a page for
// each transaction that is open anywhere on the server.
func (r *Relay) searchThrough(ctx context.Context, c *topicPause, claimed chan<- *leasedBatch) {
	for r.probe(ctx, claimed); len(c.scan.parts) > 0; {
		r.probe(ctx, claimed)
	}
}

// A topic without an event must not stay paused because others have events in flight: the
// relay would scan all its unfinished events again and again.
func TestOnlyItsOwnBatchesKeepATopicPaused(t *testing.T) {
	t.Parallel()
	for kind, paused := range map[string]bool{"engagement": false, "video": true} {
		b, _ := newTopicsBench(t)
		r, claimed := b.registered(t)
		e := event("busy", 1)
		e.AggregateType = kind
		r.inFlight.reserve(byScan)
		r.inFlight.add(claimResult{Claimed: queue.Claimed{Batches: []queue.Batch{{{Event: e}}}}, low: datedLow{snapshot: "1000000:1000000:"}})
		c := r.pauses["video"]
		outAndDue(c)
		r.searchThrough(t.Context(), c, claimed)
		if c.paused() != paused {
			t.Errorf("with an event of type %s in flight, the topic of type video is paused: %v", kind, c.paused())
		}
	}
}

// A probe scan that finds nothing is followed by a pause. During the pause the relay claims
// retries and does not scan; it does not conclude that the topic has no event.
func TestProbeScansThatFindNothingArePaced(t *testing.T) {
	t.Parallel()
	b, _ := newTopicsBench(t)
	r, claimed := b.registered(t)
	c := r.pauses["video"]
	c.scan.notBefore = time.Now().Add(time.Hour)
	b.append(t, "left", 1, 1)
	outAndDue(c)
	r.searchThrough(t.Context(), c, claimed)
	if len(claimed) != 0 || !c.paused() || c.startProbe() != 0 {
		t.Fatalf("in the pause: %d candidates, open %v", len(claimed), c.paused())
	}
	b.append(t, "retried", 1, 1)
	b.exec(t, `UPDATE outbox SET next_retry_at = now() WHERE aggregate_id = 'retried'`)
	c.postpone(c.state, 0)
	r.searchThrough(t.Context(), c, claimed)
	if len(claimed) != 1 || (<-claimed).events[0].AggregateID != "retried" {
		t.Fatal("no probe is chosen among the retries")
	}
	c.scan.notBefore = time.Now()
	c.postpone(c.state, 0)
	r.searchThrough(t.Context(), c, claimed)
	if len(claimed) != 1 || (<-claimed).events[0].AggregateID != "left" {
		t.Error("no probe is chosen among what is left alone")
	}
	b.exec(t, `UPDATE outbox SET published_at = now()`)
	before := time.Now()
	c.postpone(c.state, 0)
	r.searchThrough(t.Context(), c, claimed)
	if !c.scan.notBefore.After(before) || c.scan.notBefore.After(time.Now().Add(probeScanPause)) {
		t.Errorf("the next walk begins at %v", c.scan.notBefore)
	}
}

// A failed search does not affect the claims. A scan looks for its possible leases, and the
// next search begins with the retries.
func TestAFailedSearchIsRepeated(t *testing.T) {
	t.Parallel()
	b, _ := newTopicsBench(t)
	r, claimed := b.registered(t)
	b.append(t, "a", 1, 1)
	c := r.pauses["video"]
	outAndDue(c)
	c.pauses = 2 // this probe scans for skipped events first
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	r.probe(cancelled, claimed)
	if !c.paused() || c.scan.failures != 1 || len(c.scan.parts) != 0 || !r.followUps.mayHaveUnknownLeases() || r.failures.Load() != 0 {
		t.Fatalf("open %v, %+v, doubt %v, %d failures of the claims", c.paused(), c.scan, r.followUps.mayHaveUnknownLeases(), r.failures.Load())
	}
	c.scan.notBefore = time.Now()
	c.postpone(c.state, 0)
	r.searchThrough(t.Context(), c, claimed)
	if len(claimed) != 1 || c.scan.failures != 0 {
		t.Errorf("%d candidates, %d failures", len(claimed), c.scan.failures)
	}
}

// A search for candidates reads one page at a time: other paused topics wait for one page
// at most.
func TestProbesAreLookedForPageByPage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publishedRows(t, 3*scanRows)
	b.exec(t, `UPDATE outbox_relays SET low = '1:1:'`)
	r, claimed := b.newRelay(t), make(chan *leasedBatch, 10)
	var s claimSchedule
	r.step(t.Context(), &s, claimed) // it joins, and answers for all of the table
	b.append(t, "a", 1, 1)
	c := r.pauses["video"]
	c.pause(causeOutage)
	c.pauses = 2 // this probe scans first
	c.retryAt = time.Now()
	turns := 0
	for ; len(claimed) == 0 && turns < 10; turns++ {
		r.probe(t.Context(), claimed)
	}
	if turns != 4 {
		t.Errorf("a probe is found in turn %d, want the one of its page, 4", turns)
	}
}

// An event without a topic says nothing about any topic. If it were a probe, no result would end the probe, and
// the topic would stay paused for ever.
func TestAnEventWithoutATopicIsNoProbe(t *testing.T) {
	t.Parallel()
	b, _ := newTopicsBench(t)
	r, claimed := b.registered(t)
	c := r.pauses["video"]
	outAndDue(c)
	memo := event("a", 1)
	memo.AggregateType = "memo"
	if err := b.appendAll(t, memo); err != nil {
		t.Fatal(err)
	}
	r.probe(t.Context(), claimed)
	for len(claimed) > 0 {
		h := <-claimed
		r.settleAll(t, publishResult{batch: h, report: r.send(t.Context(), t.Context(), h)})
	}
	c.mu.Lock()
	out := c.probesOut
	c.mu.Unlock()
	if out != 0 {
		t.Errorf("%d probes are without a result", out)
	}
	b.append(t, "good", 1, 1)
	for range 20 {
		r.probe(t.Context(), claimed)
	}
	found := false
	for len(claimed) > 0 { // the search may hand back the event without a topic once more
		h := <-claimed
		found = found || h.probe != 0 && h.events[0].AggregateID == "good"
	}
	if !found {
		t.Error("the next search finds no probe, and nothing else ends the pause")
	}
}
