package catalog

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/projection"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
)

func TestApplyTheLifeOfAVideo(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()

	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	want := Video{
		ID: id, UploaderID: uploader, Title: "first", Description: "about it", DurationSeconds: 60,
		PublishedAt: atp(-1), Versioned: aliveAt(1),
	}
	check := func() {
		t.Helper()
		if diff := cmp.Diff(want, f.row(t, id)); diff != "" {
			t.Fatalf("row (-want +got):\n%s", diff)
		}
	}
	check()

	f.must(t, inbox.Applied, titled(id, 2, "second"))
	want.Title, want.Version, want.UpdatedAt = "second", 2, at(2)
	check()

	f.must(t, inbox.Applied, updatedEvent(id, 3, &eventsv1.VideoUpdated{
		Description: new("longer"), DurationSeconds: new(int64(0)), PublishedAt: pb(3),
	}))
	want.Description, want.DurationSeconds, want.PublishedAt, want.Version, want.UpdatedAt = "longer", 0, atp(3), 3, at(3)
	check()

	f.must(t, inbox.Applied, updatedEvent(id, 4, &eventsv1.VideoUpdated{
		Cleared: []string{"description", "published_at", "a_field_of_the_future"},
	}))
	want.Description, want.PublishedAt, want.Version, want.UpdatedAt = "", nil, 4, at(4)
	check()

	f.must(t, inbox.Applied, deletedEvent(id, 5))
	want = Video{ID: id, Versioned: graveAt(5)}
	check()
}

// A publisher cannot show another tenant the video of a tenant: the owner decides whose it is.
func TestAnEventOfAnotherTenantMovesNoRow(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	created := createdEvent(id, 1, "acme's")
	created.TenantID = "acme"
	f.must(t, inbox.Applied, created)
	moved := deletedEvent(id, 2)
	moved.TenantID = "bolt"
	f.must(t, inbox.Diverged, moved)
	moved.Epoch = 2
	f.must(t, inbox.Diverged, moved)
	if v := f.row(t, id); v.TenantID != "acme" || v.Version != 1 {
		t.Errorf("the row is %+v, want acme's first version", v)
	}
}

func TestApplyRefusesWhatContradictsItself(t *testing.T) {
	t.Parallel()
	f, id, other := setUp(t), newVideoID(), newVideoID()
	good := func() eventing.Event { return createdEvent(id, 1, "x") }
	envelope := func(edit func(*eventsv1.Event)) eventing.Event {
		var e eventsv1.Event
		if err := proto.Unmarshal(good().Payload, &e); err != nil {
			t.Fatal(err)
		}
		edit(&e)
		return withPayload(good(), &e)
	}
	attributes := func(edit func(*eventing.Event)) eventing.Event {
		e := good()
		edit(&e)
		return e
	}
	for name, tc := range map[string]struct {
		event eventing.Event
		says  string
	}{
		"payload is no protobuf":        {attributes(func(e *eventing.Event) { e.Payload = []byte("{}") }), "payload"},
		"payload is empty":              {attributes(func(e *eventing.Event) { e.Payload = nil }), "uploader_id"},
		"unknown type":                  {attributes(func(e *eventing.Event) { e.Type = "VideoExploded" }), "event_type"},
		"unknown schema version":        {attributes(func(e *eventing.Event) { e.SchemaVersion = 2 }), "schema_version"},
		"another aggregate type":        {attributes(func(e *eventing.Event) { e.AggregateType = "user" }), "aggregate_type"},
		"id is no UUID":                 {attributes(func(e *eventing.Event) { e.AggregateID = "42" }), "aggregate_id"},
		"id in braces":                  {attributes(func(e *eventing.Event) { e.AggregateID = "{" + id.String() + "}" }), "aggregate_id"},
		"id in capitals":                {attributes(func(e *eventing.Event) { e.AggregateID = strings.ToUpper(id.String()) }), id.String()},
		"id of another video":           {attributes(func(e *eventing.Event) { e.AggregateID = other.String() }), other.String()},
		"another event id":              {attributes(func(e *eventing.Event) { e.ID = other }), other.String()},
		"another version":               {attributes(func(e *eventing.Event) { e.Version = 7 }), "7"},
		"type of another payload":       {attributes(func(e *eventing.Event) { e.Type = "VideoDeleted" }), "VideoDeleted"},
		"update with a creation's body": {attributes(func(e *eventing.Event) { e.Type = "VideoUpdated" }), "VideoUpdated"},
		"envelope of another version":   {envelope(func(e *eventsv1.Event) { e.Version = 2 }), "2"},
		"envelope of another type":      {envelope(func(e *eventsv1.Event) { e.AggregateType = "user" }), "user"},
		"envelope of another video":     {envelope(func(e *eventsv1.Event) { e.AggregateId = other.String() }), other.String()},
		"body of another version":       {envelope(func(e *eventsv1.Event) { e.GetCreated().Version = 3 }), "3"},
		"body of another video":         {envelope(func(e *eventsv1.Event) { e.GetCreated().VideoId = other.String() }), other.String()},
		"creation without an uploader":  {envelope(func(e *eventsv1.Event) { e.GetCreated().UploaderId = "" }), "uploader_id"},
		"a time beyond the year 9999": {envelope(func(e *eventsv1.Event) {
			e.GetCreated().PublishedAt = &timestamppb.Timestamp{Seconds: 253_402_300_800}
		}), "published_at"},
		"creation with a broken uploader": {envelope(func(e *eventsv1.Event) { e.GetCreated().UploaderId = "me" }), "uploader_id"},
	} {
		_, err := f.apply(t, tc.event)
		if !eventing.IsPermanent(err) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v; want a permanent error that says %q", name, err, tc.says)
		}
		if err := f.projector.videos.Repair(t.Context(), tc.event); !eventing.IsPermanent(err) {
			t.Errorf("%s: repair: %v; want a permanent error", name, err)
		}
	}
	if v := f.row(t, id); v.Version != 0 {
		t.Errorf("something was written: %+v", v)
	}
	f.must(t, inbox.Applied, good())
}

// An event of a release without tenants, and the state of an aggregate that its owner has lost, name
// no tenant. The row stays its tenant's.
func TestARowKeepsItsTenant(t *testing.T) {
	t.Parallel()
	id := newVideoID()
	for _, payload := range []any{&eventsv1.VideoUpdated{}, projection.Lost{AsOf: at(3)}} {
		c := inbox.Change{Event: eventing.Event{AggregateID: id.String(), Version: 3}, Payload: payload}
		for before, want := range map[string]string{"acme": "acme", "": eventing.DefaultTenant} {
			if v := (videos{}).Apply(Video{Versioned: Versioned{TenantID: before, Version: 2}}, c); v.TenantID != want {
				t.Errorf("%T: a row of %q is of tenant %q, want %q", payload, before, v.TenantID, want)
			}
		}
	}
}
