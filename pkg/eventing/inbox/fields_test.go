package inbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"example.com/lockstep/pkg/eventing"
)

// Every line about an event names the event, the message that brought it and its aggregate
// under the same keys, and none has the event's content.
func TestLinesAboutEventsNameThem(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var out lines
	c := NewConsumer(b.db, b.client, subscription, b.handler(decode), slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})),
		func() {}, Options{})
	failures := 2 // with the batch, and alone
	b.setSpoil(func(e eventing.Event) error {
		switch {
		case e.AggregateID == "poison":
			return eventing.Permanent(errors.New("no such column"))
		case e.AggregateID == "fails" && failures > 0:
			failures--
			return errors.New("not now")
		}
		return nil
	})
	b.setOwner("gap", 5)
	var batch []*delivery
	for i, e := range []eventing.Event{event("poison", 1), event("fails", 1), event("gap", 5)} {
		e.Payload = []byte("s3cret")
		d := delivered(e)
		d.messages = []*pubsub.Message{{ID: "m" + string(rune('0'+i)), Data: e.Payload, Attributes: e.Message().Attributes}}
		batch = append(batch, d)
	}
	c.finish(t, batch...)

	var seen []string
	for _, line := range out.all(t) {
		if line["message_id"] == nil {
			continue // about the consumer as a whole
		}
		seen = append(seen, line["msg"].(string))
		for _, key := range []string{"event_id", "event_type", "aggregate_type", "aggregate_id", "ordering_key", "version", "epoch"} {
			if line[key] == nil {
				t.Errorf("%q has no %s: %v", line["msg"], key, slices.Sorted(maps.Keys(line)))
			}
		}
	}
	slices.Sort(seen)
	want := []string{"event dead-lettered", "event failed, trying again", "event handled", "gap: asking the owner"}
	if got := slices.Compact(seen); !slices.Equal(got, want) {
		t.Errorf("lines about events: %q, want %q", got, want)
	}
	if strings.Contains(out.String(), "s3cret") {
		t.Error("a line has the content of an event")
	}
}

// Terraform's alert on the line waits for as long as the alert on the gauge does. The lines of many young gaps, however
// often they were tried, do not keep it back.
func TestAGapSaysForHowLongItIsOpen(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var out lines
	c := NewConsumer(b.db, b.client, subscription, b.handler(decode), slog.New(slog.NewJSONHandler(&out, nil)), func() {}, Options{})
	for range 1000 {
		c.repairFailed(t.Context(), delivered(event("young", 2)), errors.New("away"), 100, time.Minute, time.Second)
	}
	out.Reset()
	c.repairFailed(t.Context(), delivered(event("a", 2)), errors.New("away"), 2, 10*time.Minute, time.Second)
	if got := out.all(t); len(got) != 1 || got[0]["open_ms"] != 600_000.0 || got[0]["retry_in_ms"] != 1000.0 || got[0]["level"] != "ERROR" {
		t.Errorf("%v", got)
	}
}

// lines are log lines of several goroutines.
type lines struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *lines) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.Reset()
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

func (l *lines) all(t *testing.T) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(l.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		all = append(all, fields)
	}
	return all
}
