package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// batchOf returns versions 1..n of an aggregate, with payloads of so many bytes.
func batchOf(n, bytes int) queue.Batch {
	r := make(queue.Batch, n)
	for i := range r {
		r[i] = queue.Event{Event: event("a", int64(i)+1)}
		r[i].Payload = make([]byte, bytes)
	}
	return r
}

// longTexts returns b with the longest attributes that an event may have. The type stays, because it has a topic.
func longTexts(b queue.Batch) queue.Batch {
	text := strings.Repeat("x", eventing.MaxKeyBytes)
	for i := range b {
		e := &b[i].Event
		e.AggregateID, e.Type, e.TenantID, e.TraceParent, e.PreviousEventID = text, text, text, text, uuid.Max
		e.Version, e.SchemaVersion, e.Epoch = math.MaxInt64, math.MaxInt32, math.MaxInt64
	}
	return b
}

// withLease returns events as a batch with a lease that has just begun.
func withLease(events queue.Batch) *leasedBatch {
	h := &leasedBatch{events: events}
	h.extend(time.Now().Add(queue.LeaseTime))
	return h
}

func TestARequestKeepsTheBrokersLimits(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		batch queue.Batch
		want  []int // messages in each request
	}{
		"few":             {batchOf(3, 10), []int{3}},
		"many":            {batchOf(2*maxRequestMessages+1, 10), []int{maxRequestMessages, maxRequestMessages, 1}},
		"large":           {batchOf(5, 3<<20), []int{2, 2, 1}},
		"each too large":  {batchOf(2, maxRequestBytes+1), []int{1, 1}},
		"large with what": {batchOf(2, maxRequestBytes-attributeBytes-1), []int{1, 1}},
		"long texts":      {longTexts(batchOf(1000, 6000)), []int{720, 280}},
	} {
		b := newBench(t)
		var got []int
		b.setFault(func(ctx context.Context, req *pubsubpb.PublishRequest, _ func(context.Context) error) error {
			got = append(got, len(req.Messages))
			if by, ok := ctx.Deadline(); !ok || time.Until(by) > publishTimeout {
				t.Errorf("%s: a request has until %v", name, by)
			}
			if size := proto.Size(req); size > maxRequestBytes && len(req.Messages) > 1 {
				t.Errorf("%s: a request of %d messages has %d bytes", name, len(req.Messages), size)
			}
			return nil
		})
		r := b.newRelay(t)
		rep := r.publisher.publish(t.Context(), t.Context(), withLease(tc.batch), r.pauses["video"])
		if !slices.Equal(got, tc.want) || rep.published != len(tc.batch) || rep.requests != len(tc.want) {
			t.Errorf("%s: requests of %v messages, want %v; report %+v", name, got, tc.want, rep)
		}
	}
}

// TestNoRequestStartsAfterTheLeaseOrTheRun ends the run between two requests, too.
func TestNoRequestStartsAfterTheLeaseOrTheRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	requests := 0
	ended, end := context.WithCancel(t.Context())
	b.setFault(func(context.Context, *pubsubpb.PublishRequest, func(context.Context) error) error {
		requests++
		end()
		return nil
	})
	r := b.newRelay(t)
	rep := r.publisher.publish(ended, t.Context(), withLease(batchOf(5, 3<<20)), r.pauses["video"])
	if requests != 1 || rep.published != 2 || rep.err != nil {
		t.Errorf("%d requests, report %+v", requests, rep)
	}
	send := func(ctx context.Context, left time.Duration, probe int) report {
		h := &leasedBatch{events: batchOf(1, 1), probe: probe}
		h.extend(time.Now().Add(left))
		return r.send(ctx, t.Context(), h)
	}
	if rep := send(ended, queue.LeaseTime, 0); rep.requests != 0 {
		t.Error("a request is started after the relay's end")
	}
	if rep := send(t.Context(), publishTimeout-time.Second, 0); rep.requests != 0 {
		t.Error("a request is started that its lease may not cover")
	}
	r.pauses["video"].pause(causeOutage)
	if rep := send(t.Context(), queue.LeaseTime, 0); rep.requests != 0 {
		t.Error("a request is started to a topic that is paused")
	}
	if rep := send(t.Context(), queue.LeaseTime, r.pauses["video"].state); rep.requests != 1 {
		t.Error("a probe is not sent")
	}
	if r.pauses["video"].paused() {
		t.Error("the probe has not ended the pause")
	}
}

// A batch's first request is taken and its second refused, on a topic that refuses three
// others.
func TestWhatIsSentBeforeAFaultIsASuccess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.newRelay(t)
	c := r.pauses["video"]
	refuseEach(c, 0, "x", "y", "z")
	requests := 0
	fault := refuse("")
	b.setFault(func(ctx context.Context, req *pubsubpb.PublishRequest, send func(context.Context) error) error {
		requests++
		if requests == 1 {
			return nil
		}
		return fault(ctx, req, send)
	})
	h := withLease(batchOf(3, 5<<20))
	h.probe = c.state
	rep := r.send(t.Context(), t.Context(), h)
	if rep.published != 1 || rep.err == nil || c.paused() {
		t.Errorf("report %+v, open %v", rep, c.paused())
	}
	if n, _ := refuseEach(c, 0, "x", "y", "z"); n != 3 {
		t.Errorf("%d verdicts of 3 after a success", n)
	}
}

// TestADrainIsNoTopicFailure has requests cut off because the relay ends.
func TestADrainIsNoTopicFailure(t *testing.T) {
	t.Parallel()
	r := newBench(t).newRelay(t)
	c := r.pauses["video"]
	results, land := context.WithCancel(t.Context())
	land()
	for range pauseAfter {
		h := withLease(batchOf(1, 1))
		if rep := r.send(t.Context(), results, h); rep.err == nil || rep.refused {
			t.Fatalf("report %+v", rep)
		}
	}
	if c.paused() {
		t.Error("what was cut off counts as an outage")
	}
}

// A probe that was not sent is taken back: the next search may probe at once.
func TestAProbeThatIsNotSentIsTakenBack(t *testing.T) {
	t.Parallel()
	r := newBench(t).newRelay(t)
	c := r.pauses["video"]
	c.pause(causeOutage)
	c.retryAt = time.Now()
	state := c.startProbe()
	if state == 0 {
		t.Fatal("no probe is due")
	}
	if rep := r.send(t.Context(), t.Context(), &leasedBatch{events: batchOf(1, 1), probe: state}); rep.requests != 0 {
		t.Fatal("a request is started without a lease")
	}
	if c.startProbe() == 0 {
		t.Error("no probe is possible any more")
	}
}

// A line of the level DEBUG names each published event and its message, and has nothing of its content.
func TestPublishedEventsAreLoggedWithTheirMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "a", 1, 2)
	var out bytes.Buffer
	r := NewRelay(b.db, b.client, b.topics, slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})), func() {}, Options{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	b.eventually(t, 0, unpublished)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	got := map[string]any{}
	for line := range strings.Lines(out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		if fields["msg"] == "event published" {
			got[fmt.Sprint(fields["aggregate_id"], fields["version"])] = fields["message_id"]
		}
	}
	want := map[string]any{}
	for _, m := range b.server.Messages() {
		want[m.OrderingKey+m.Attributes[eventing.AttrVersion]] = m.ID
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want) != 2 {
		t.Errorf("messages of the published events (-want +got):\n%s", diff)
	}
}
