package video

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
	"example.com/lockstep/services/video/aggregate"
)

// The compiler does not see that a form lacks a field. Writes of the field would then be lost.
func TestEveryFieldHasAllForms(t *testing.T) {
	t.Parallel()
	full := Video{
		ID: uuid.New(), Title: "t", Description: "d", DurationSeconds: 7, PublishedAt: new(time.Unix(1, 0).UTC()),
	}
	want := full.values(fields)

	body, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var overREST restBody
	if err := json.Unmarshal(body, &overREST); err != nil {
		t.Fatal(err)
	}
	var found problem.Violations
	given, v := overREST.video(&found)
	if diff := cmp.Diff(want, v.values(fields)); diff != "" || !slices.Equal(given, fields) {
		t.Errorf("REST gives %v (-want +got):\n%s", given, diff)
	}
	if diff := cmp.Diff(want, fromGRPC(full.proto(), fields, &found).values(fields)); diff != "" {
		t.Errorf("gRPC (-want +got):\n%s", diff)
	}
	created, updated := payload(t, full, nil).GetCreated(), payload(t, full, fields).GetUpdated()
	for _, name := range fields {
		var v Video
		if v.value(name) == full.value(name) {
			t.Errorf("the video of this test has no %s", name)
		}
		if changed := v.set([]string{name}, full); !slices.Equal(changed, []string{name}) || v.value(name) != full.value(name) {
			t.Errorf("%s is not set", name)
		}
		if !has(created, name) || !has(updated, name) {
			t.Errorf("an event lacks %s", name)
		}
	}
}

// payload is the message of an update of the fields in changed, or of a creation.
func payload(t *testing.T, v Video, changed []string) *eventsv1.Event {
	t.Helper()
	var e eventing.Event
	var err error
	if changed == nil {
		e, err = createdEvent(t.Context(), v)
	} else {
		e, err = updatedEvent(t.Context(), v, aggregate.Revision{}, changed)
	}
	if err != nil {
		t.Fatal(err)
	}
	var envelope eventsv1.Event
	if err := proto.Unmarshal(e.Payload, &envelope); err != nil {
		t.Fatal(err)
	}
	return &envelope
}

func has(m proto.Message, field string) bool {
	r := m.ProtoReflect()
	return r.Has(r.Descriptor().Fields().ByName(protoreflect.Name(field)))
}
