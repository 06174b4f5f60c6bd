package deadletter

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

func TestCollectShowsBothHalves(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	whole := event("whole", 1)
	b.deadLetter(t, whole)
	// A message that is no event, a message without an inbox row, and a row
	// with an expired message.
	b.send(t, subscription+".dlq", &pubsubpb.PubsubMessage{
		Data: []byte("hello"), Attributes: map[string]string{inbox.AttrDeadLetterReason: "no event_id", inbox.AttrDeadLetterAttempts: "3"},
	})
	rowless, expired := event("rowless", 2), event("expired", 3)
	b.send(t, subscription+".dlq", rowless.Message())
	b.send(t, subscription+".dlq", rowless.Message()) // twice, after a crash
	_, err := b.db.Exec(t.Context(), `
		INSERT INTO inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time, status, attempts, last_error)
		VALUES ($1, $2, 'VideoUpdated', 'video', 'expired', 3, 'm', now(), 'dead', 5, 'too late'),
		       ('another consumer', $2, 'VideoUpdated', 'video', 'expired', 3, 'm', now(), 'dead', 5, 'not ours')`, subscription, expired.ID)
	if err != nil {
		t.Fatal(err)
	}
	type seen struct {
		Aggregate, Status, Reason  string
		Version                    int64
		Attempts, Messages         int
		HasID, HasMessage, HasType bool
	}
	want := []seen{
		{"", "none", "no event_id", 0, 3, 1, true, true, false},
		{"expired", "dead", "too late", 3, 5, 0, true, false, true},
		{"rowless", "none", byTheBroker, 2, 0, 2, true, true, true},
		{"whole", "dead", "title is a teapot", 1, 1, 1, true, true, true},
	}
	for range 2 { // showing them removes nothing
		h := b.collect(t)
		var got []seen
		for _, l := range h.Letters {
			reason := l.Reason
			if i := strings.Index(reason, "title"); i > 0 {
				reason = reason[i:] // the handler's text, after the consumer's
			}
			got = append(got, seen{l.AggregateID, l.Status, reason, l.Version, l.Attempts, l.Messages, l.ID() != "", l.MessageID != "", l.Type != ""})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		if data, attributes := h.Content(h.Letters[3]); string(data) != "\x0a\x07payload" || attributes[eventing.AttrEventID] != whole.ID.String() {
			t.Errorf("content %q %v", data, attributes)
		}
		b.release(t, h)
	}
}

func TestRedriveAppliesInOrderOnceAndPublishesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetter(t, event("a", 3), event("b", 1), event("a", 1), event("a", 2))
	b.set(func() { b.committed = nil })
	h := b.collect(t)
	if diff := cmp.Diff([]Result{Applied, Applied, Applied, Applied}, b.redriveAll(t, h)); diff != "" {
		t.Error(diff)
	}
	if a, c := b.effects(t, "a"), b.effects(t, "b"); a != "123" || c != "1" {
		t.Errorf("effects %q and %q, want 123 and 1", a, c)
	}
	entries := `SELECT count(*) FROM operator_actions JOIN inbox USING (event_id, aggregate_type, aggregate_id, version) WHERE action = 'redrive'`
	if b.count(t, withStatus, "done") != 4 || b.count(t, entries) != 4 {
		t.Error("want four rows done and four audit entries")
	}
	if n := b.count(t, `SELECT count(*) FROM inbox WHERE source = 'redrive' AND processed_at IS NOT NULL AND begun = 0`); n != 4 {
		t.Errorf("%d rows have the redrive and its time, want 4", n)
	}
	b.set(func() {
		if b.published != 0 {
			t.Errorf("a redrive has published %d messages", b.published)
		}
		if diff := cmp.Diff([]string{"a", "a", "a", "b"}, b.committed); diff != "" {
			t.Errorf("waiting readers were told of others (-want +got):\n%s", diff)
		}
	})
	b.release(t, h)
	if left := b.collect(t).Letters; len(left) != 0 {
		t.Errorf("%d dead letters are left: %+v", len(left), left)
	}
}

func TestRedriveThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetter(t, event("a", 1), event("b", 5))
	h := b.collect(t)
	for name, spoil := range map[string]func(eventing.Event) error{
		"an error": func(eventing.Event) error { return errors.New("still a teapot") },
		"a panic":  func(eventing.Event) error { panic("still a teapot") },
	} {
		b.set(func() { b.spoil = spoil })
		if r, err := h.Redrive(t.Context(), order, h.Letters[0]); r != "" || err == nil || !strings.Contains(err.Error(), "teapot") {
			t.Errorf("%s: %q, %v", name, r, err)
		}
	}
	b.set(func() { b.spoil = nil })
	if r, err := h.Redrive(t.Context(), order, h.Letters[1]); r != "" || err == nil || !strings.Contains(err.Error(), "owner is away") {
		t.Errorf("gap without an owner: %q, %v", r, err)
	}
	if b.count(t, withStatus, "dead") != 2 || b.count(t, withAction, "redrive") != 0 || b.effects(t, "a")+b.effects(t, "b") != "" {
		t.Error("a redrive that failed has left something behind")
	}
	b.release(t, h)
	h = b.collect(t)
	if len(h.Letters) != 2 || h.Letters[0].Messages != 1 || h.Letters[1].Messages != 1 {
		t.Fatalf("dead letters after failed redrives: %+v", h.Letters)
	}
	b.set(func() { b.owner["b"] = 7 })
	if diff := cmp.Diff([]Result{Applied, Repaired}, b.redriveAll(t, h)); diff != "" || b.effects(t, "b") != "r" {
		t.Errorf("effects of the gap %q; results %s", b.effects(t, "b"), diff)
	}
}

func TestRedriveOfAnOlderVersionIsStale(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetter(t, event("a", 2))
	b.set(func() { b.owner["a"] = 3 })
	if err := b.repair(t.Context(), event("a", 3)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Result{Stale}, b.redriveAll(t, b.collect(t))); diff != "" || b.effects(t, "a") != "r" {
		t.Errorf("effects %q; %s", b.effects(t, "a"), diff)
	}
}

func TestRedriveAfterACrashBeforeTheAckFindsItDone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetter(t, event("a", 1))
	h := b.collect(t)
	b.set(func() { b.failing[acknowledge] = true })
	if r, err := h.Redrive(t.Context(), order, h.Letters[0]); r != Applied || err == nil {
		t.Errorf("redrive without an ack: %q, %v", r, err)
	}
	b.set(func() { b.failing[acknowledge] = false })
	b.release(t, h)
	h = b.collect(t)
	if len(h.Letters) != 1 || h.Letters[0].Status != "done" {
		t.Fatalf("dead letters %+v, want the one that is done", h.Letters)
	}
	if diff := cmp.Diff([]Result{Done}, b.redriveAll(t, h)); diff != "" || b.effects(t, "a") != "1" {
		t.Errorf("effects %q; %s", b.effects(t, "a"), diff)
	}
	if b.count(t, withAction, "redrive") != 1 {
		t.Error("a redrive that did nothing is in the audit table")
	}
}

func TestRedrivesAtOnceHaveOneEffect(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetter(t, event("a", 1))
	h := b.collect(t)
	l := h.Letters[0]
	var running sync.WaitGroup
	results := make([]Result, 8)
	for i := range results {
		running.Go(func() {
			var err error
			if results[i], err = h.queue.apply(t.Context(), order, h.first(l), l, false); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	applied := 0
	for _, r := range results {
		if r == Applied {
			applied++
		}
	}
	if applied != 1 || b.effects(t, "a") != "1" || b.count(t, withAction, "redrive") != 1 {
		t.Errorf("results %v, effects %q", results, b.effects(t, "a"))
	}
}

func TestInvalidMessageCanOnlyBeDiscarded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send(t, subscription+".dlq", &pubsubpb.PubsubMessage{Data: []byte{0xff, 0}, OrderingKey: "a", Attributes: map[string]string{
		"k": "v", eventing.AttrAggregateType: "video", eventing.AttrAggregateID: "a",
	}})
	h := b.collect(t)
	if _, err := h.Redrive(t.Context(), order, h.Letters[0]); err == nil || !strings.Contains(err.Error(), "event_id") {
		t.Errorf("redrive: %v", err)
	}
	if err := h.Discard(t.Context(), order, h.Letters[0]); err != nil {
		t.Fatal(err)
	}
	kept := `SELECT count(*) FROM operator_actions
		WHERE action = 'discard' AND event_id IS NULL AND message_id <> '' AND actor = 'ada' AND why <> ''
		  AND aggregate_type = 'video' AND aggregate_id = 'a' AND record->>'ordering_key' = 'a'
		  AND decode(record->>'data', 'base64') = '\xff00' AND record->'attributes'->>'k' = 'v'`
	if b.count(t, kept) != 1 || b.count(t, `SELECT count(*) FROM inbox`) != 0 {
		t.Error("the audit table does not keep the message, or it has got a row")
	}
	b.release(t, h)
	if left := b.collect(t).Letters; len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}

func TestDiscardedIsSettledButNoDuplicate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := event("a", 1)
	b.deadLetter(t, e)
	pgtest.Exec(t, b.db, `
		INSERT INTO inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time, status)
		VALUES ($1, gen_random_uuid(), 'VideoUpdated', 'video', 'expired', 3, 'm', now(), 'dead')`, subscription)
	b.set(func() { b.owner = map[string]int64{"a": 0, "expired": 0} })
	h := b.collect(t)
	if _, err := h.Redrive(t.Context(), order, h.Letters[1]); !errors.Is(err, ErrNoMessage) {
		t.Errorf("redrive without a message: %v", err)
	}
	for _, l := range h.Letters {
		if err := h.Discard(t.Context(), order, l); err != nil {
			t.Error(err)
		}
	}
	b.release(t, h)
	if left := b.collect(t).Letters; len(left) != 0 || b.count(t, withStatus, "discarded") != 2 {
		t.Errorf("left: %+v", left)
	}
	history, err := audit.History(t.Context(), b.db, e.ID)
	if err != nil || len(history) != 1 || history[0].Action != "discard" || history[0].DatabaseRole != "app_service" {
		t.Errorf("history %+v, %v", history, err)
	}
	// Delivered once more, it is tried like any other message.
	b.send(t, subscription+".dlq", e.Message())
	if diff := cmp.Diff([]Result{Applied}, b.redriveAll(t, b.collect(t))); diff != "" || b.effects(t, "a") != "r1" {
		t.Errorf("effects %q; %s", b.effects(t, "a"), diff)
	}
}

// Of two operators who discard a letter whose message is gone, one has done it.
func TestTwoDiscardsOfOneLetter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetter(t, event("a", 1))
	b.set(func() { b.owner["a"] = 1 })
	holder, one, other := b.collect(t), b.collect(t), b.collect(t)
	for _, h := range []*Batch{one, other} {
		if len(h.Letters) != 1 || h.Letters[0].Messages != 0 {
			t.Fatalf("dead letters %+v, want one without its message", h.Letters)
		}
		if err := h.Discard(t.Context(), order, h.Letters[0]); err != nil {
			t.Error(err)
		}
	}
	if n := b.count(t, withAction, "discard"); n != 1 || b.count(t, withStatus, "discarded") != 1 {
		t.Errorf("%d entries, want one", n)
	}
	if l := holder.Letters[0]; b.asked.ID != l.EventID || b.asked.AggregateType != l.AggregateType || b.asked.Version != l.Version {
		t.Errorf("the owner is asked for %+v, want the event of %+v", b.asked, l)
	}
	if err := holder.Discard(t.Context(), order, holder.Letters[0]); err != nil {
		t.Error(err)
	}
	if n := b.count(t, `SELECT count(*) FROM operator_actions WHERE action = 'discard' AND record IS NOT NULL`); n != 1 {
		t.Errorf("%d entries have the message, want that of the holder", n)
	}
}

func TestDiscardLeavesWhatIsDone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetter(t, event("a", 1))
	b.set(func() { b.owner["a"] = 1 })
	h := b.collect(t)
	if _, err := h.queue.apply(t.Context(), order, h.first(h.Letters[0]), h.Letters[0], false); err != nil {
		t.Fatal(err)
	}
	if err := h.Discard(t.Context(), order, h.Letters[0]); err != nil || b.count(t, withStatus, "done") != 1 {
		t.Errorf("discard of what was redriven meanwhile: %v", err)
	}
}
