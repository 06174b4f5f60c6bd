package eventing_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"example.com/lockstep/pkg/eventing"
)

func TestSampledEvents(t *testing.T) {
	t.Parallel()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"
	for traceparent, want := range map[string]bool{
		parent + "01": true, parent + "03": true, parent + "00": false, parent + "02": false,
		"": false, "00-4bf92f": false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": false,
	} {
		e := eventing.Event{TraceParent: traceparent}
		if got := e.IsSampled(); got != want {
			t.Errorf("%q: sampled %t, want %t", traceparent, got, want)
		}
		if valid := trace.SpanContextFromContext(e.InTrace(t.Context())).IsValid(); valid != eventing.SpanContext(traceparent).IsValid() {
			t.Errorf("%q: in a trace %t", traceparent, valid)
		}
	}
}

func TestFieldsOfLines(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	e := eventing.Event{ID: id, Type: "VideoUpdated", AggregateType: "video", AggregateID: "v", Version: 3, Epoch: 2, Payload: []byte("text")}
	want := []any{
		"aggregate_type", "video", "aggregate_id", "v", "ordering_key", "v", "version", int64(3), "epoch", int64(2),
		"event_id", id.String(), "event_type", "VideoUpdated",
	}
	if diff := cmp.Diff(want, e.LogAttrs()); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	// An owner's state has no event of its own, and a message that is no event has nothing.
	e.ID, e.Type = uuid.Nil, ""
	if diff := cmp.Diff(want[:10], e.LogAttrs()); diff != "" {
		t.Errorf("fields of a state (-want +got):\n%s", diff)
	}
	if got := (eventing.Event{}).LogAttrs(); len(got) > 0 {
		t.Errorf("fields of no event: %v", got)
	}
}
