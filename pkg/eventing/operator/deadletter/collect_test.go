package deadletter

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// More rows than a Batch holds are a part of the dead letters, even if no message of them is left.
func TestManyRowsWithoutMessagesArePartial(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.db.Exec(t.Context(), `
		INSERT INTO inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time, status, attempts)
		SELECT $1, gen_random_uuid(), 'VideoUpdated', 'video', n, 1, 'm', now(), 'dead', 5 FROM generate_series(1, $2::int) AS n`,
		subscription, MaxLetters+1)
	if err != nil {
		t.Fatal(err)
	}
	if h := b.collect(t); len(h.Letters) != MaxLetters || !h.Partial {
		t.Errorf("%d letters of %d, partial = %t", len(h.Letters), MaxLetters+1, h.Partial)
	}
}

// A Batch keeps a bounded number of messages in memory, and a bounded size of them. It says that there are more.
func TestABatchIsBounded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		publishes, each, size, want int
	}{
		"number": {MaxLetters/perCall + 1, perCall, 1, MaxLetters},
		"size":   {maxBytes>>20 + 1, 1, 1 << 20, maxBytes >> 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			m := &pubsubpb.PubsubMessage{Data: make([]byte, tc.size)}
			for range tc.publishes {
				b.send(t, subscription+".dlq", slices.Repeat([]*pubsubpb.PubsubMessage{m}, tc.each)...)
			}
			if h := b.collect(t); len(h.Letters) != tc.want || !h.Partial {
				t.Errorf("%d letters, want %d; partial = %t", len(h.Letters), tc.want, h.Partial)
			}
		})
	}
}

// The broker may have a message that it does not have ready. A row that misses its message waits for it.
func TestAMessageThatIsNotReady(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetter(t, event("late", 1))
	b.set(func() { b.notReady = maxEmptyPulls + 1 })
	if h := b.collect(t); len(h.Letters) != 1 || h.Letters[0].Messages != 1 {
		t.Errorf("%+v, want the row with its message", h.Letters)
	}
}

// The messages that an operator looks at stay leased for ten minutes, however short the subscription's deadline is, and
// come back at once after that.
func TestLeases(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send(t, subscription+".dlq", event("a", 1).Message(), event("a", 2).Message())
	h := b.collect(t)
	leased := func(when string, seconds int32) {
		t.Helper()
		b.set(func() {
			if got := slices.Collect(maps.Values(b.leases)); !slices.Equal(got, []int32{seconds, seconds}) {
				t.Errorf("%s the messages are leased for %v seconds, want %d", when, got, seconds)
			}
		})
	}
	leased("in a batch", 600)
	b.release(t, h)
	leased("after it", 0)
	h = b.collect(t)
	b.set(func() { b.failing[extend] = true })
	if err := h.Release(t.Context()); err == nil {
		t.Error("messages stay leased, without an error")
	}
	b.set(func() { b.failing[extend] = false })
}

// A row that is no dead letter is none either if a dead letter of another event has its id.
func TestASettledRowOfTheSameID(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := event("a", 1)
	second := first
	second.AggregateID = "z"
	b.deadLetter(t, first)
	b.redriveAll(t, b.collect(t))
	b.send(t, subscription+".dlq", second.Message())
	if h := b.collect(t); len(h.Letters) != 1 || h.Letters[0].AggregateID != "z" {
		t.Errorf("%+v, want the second one only", h.Letters)
	}
}

// The reason says that the broker wrote the dead letter, next to the error of the row.
func TestADeadLetterOfTheBrokerWithARow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := event("a", 2)
	b.send(t, subscription+".dlq", e.Message())
	_, err := b.db.Exec(t.Context(), `
		INSERT INTO inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time, status, last_error)
		VALUES ($1, $2, 'VideoUpdated', 'video', 'a', 2, 'm', now(), 'held', 'version 1 is missing')`, subscription, e.ID)
	if err != nil {
		t.Fatal(err)
	}
	h := b.collect(t)
	if len(h.Letters) != 1 || !strings.HasPrefix(h.Letters[0].Reason, byTheBroker) || !strings.HasSuffix(h.Letters[0].Reason, ": version 1 is missing") {
		t.Errorf("%+v", h.Letters)
	}
}

// The copies of a message are settled together.
func TestCopiesOfAMessage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := event("a", 1)
	b.send(t, subscription+".dlq", e.Message(), e.Message())
	h := b.collect(t)
	if results := b.redriveAll(t, h); !slices.Equal(results, []Result{Applied}) || h.Letters[0].Messages != 2 {
		t.Errorf("%v of %+v", results, h.Letters)
	}
	if b.acknowledged != 2 {
		t.Errorf("%d messages are acknowledged, want both", b.acknowledged)
	}
}

// A Collect that fails gives back what it has leased, for the next one to find.
func TestACollectThatFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetter(t, event("a", 1))
	good := b.queue
	b.queue = New(b.db, b.client, b.handler(), subscription, "no such subscription")
	if _, err := b.queue.Collect(t.Context()); err == nil {
		t.Fatal("Collect = nil, want an error")
	}
	b.queue = good
	if h := b.collect(t); len(h.Letters) != 1 || h.Letters[0].Messages != 1 {
		t.Errorf("%+v, want one with its message", h.Letters)
	}
}

// A message may have text that Postgres cannot store. It can be discarded all the same, and the audit table keeps the rest.
func TestDiscardOfAMessageWithZeroBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send(t, subscription+".dlq", &pubsubpb.PubsubMessage{
		Data: []byte("a\x00b"), Attributes: map[string]string{"k\x00": "v\x00w", "plain": `\u0041`}, OrderingKey: "o\x00",
	})
	h := b.collect(t)
	if err := h.Discard(t.Context(), order, h.Letters[0]); err != nil {
		t.Fatal(err)
	}
	kept := `SELECT count(*) FROM operator_actions WHERE action = 'discard' AND decode(record->>'data', 'base64') = '\x610062'
		AND record->'attributes'->>'plain' = '\u0041' AND record::text LIKE '%"v%w"%' AND record->>'ordering_key' LIKE 'o%'`
	if b.count(t, kept) != 1 || b.acknowledged != 1 {
		t.Error("the audit table does not keep the message, or it is not acknowledged")
	}
}

// A row whose message a full batch has not pulled is not gone.
func TestAFullBatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.db.Exec(t.Context(), `
		INSERT INTO inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time, status, attempts)
		VALUES ($1, gen_random_uuid(), 'VideoUpdated', 'video', 'a', 1, 'm', now(), 'dead', 5)`, subscription)
	if err != nil {
		t.Fatal(err)
	}
	if h := b.collect(t); len(h.Letters) != 1 || len(h.Unread) != 0 || h.Partial {
		t.Errorf("alone: %d letters, %d unread, partial = %t; want one that is gone", len(h.Letters), len(h.Unread), h.Partial)
	}
	large := &pubsubpb.PubsubMessage{Data: make([]byte, 1<<20)}
	for range maxBytes / len(large.GetData()) {
		b.send(t, subscription+".dlq", large)
	}
	h := b.collect(t)
	if len(h.Unread) != 1 || h.Unread[0].AggregateID != "a" || len(h.Letters) != maxBytes/len(large.GetData()) || !h.Partial {
		t.Errorf("next to large messages: %d letters, unread %+v, partial = %t; want the row as unread", len(h.Letters), h.Unread, h.Partial)
	}
}
