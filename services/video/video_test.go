package video

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/testing/protocmp"

	"example.com/lockstep/pkg/eventing/consistency"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
	"example.com/lockstep/services/video/aggregate"
)

func TestLifeOfAVideoAsEvents(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	steps := []struct {
		method string
		body   any
	}{
		{"PATCH", `{"title": "Herculaneum", "duration_seconds": 0}`},
		{"PATCH", `{"description": null, "published_at": null}`},
		{"PATCH", `{"description": "again", "published_at": "2026-05-06T09:08:09.000000999+02:00"}`},
		{"DELETE", `{"reason": "rights"}`},
	}
	for i, s := range steps {
		r := a.call(s.method, path(v), s.body)
		if r.Status != http.StatusOK || r.field("version") != []string{"2", "3", "4", "5"}[i] {
			t.Fatalf("%s %v: %d %s", s.method, s.body, r.Status, r.Raw)
		}
	}

	ignore := cmp.Options{
		protocmp.Transform(),
		protocmp.IgnoreFields(&eventsv1.Event{}, "event_id", "occurred_at"),
		protocmp.IgnoreFields(&eventsv1.VideoUpdated{}, "occurred_at"),
		protocmp.IgnoreFields(&eventsv1.VideoDeleted{}, "occurred_at", "deleted_at"),
	}
	id, title, description, text, zero := v.ID.String(), "Herculaneum", "again", "", int64(0)
	published := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	want := []*eventsv1.Event{
		{EventType: eventsv1.EventType_EVENT_TYPE_VIDEO_CREATED, Payload: &eventsv1.Event_Created{Created: &eventsv1.VideoCreated{
			VideoId: id, UploaderId: v.UploaderID.String(), Title: v.Title, Description: v.Description,
			DurationSeconds: 61, PublishedAt: aggregate.Timestamp(v.PublishedAt), Version: 1, OccurredAt: aggregate.Timestamp(&v.CreatedAt)}}},
		{EventType: eventsv1.EventType_EVENT_TYPE_VIDEO_UPDATED, Payload: &eventsv1.Event_Updated{Updated: &eventsv1.VideoUpdated{
			VideoId: id, Version: 2, Title: &title, DurationSeconds: &zero}}},
		{EventType: eventsv1.EventType_EVENT_TYPE_VIDEO_UPDATED, Payload: &eventsv1.Event_Updated{Updated: &eventsv1.VideoUpdated{
			VideoId: id, Version: 3, Description: &text, Cleared: []string{"description", "published_at"}}}},
		{EventType: eventsv1.EventType_EVENT_TYPE_VIDEO_UPDATED, Payload: &eventsv1.Event_Updated{Updated: &eventsv1.VideoUpdated{
			VideoId: id, Version: 4, Description: &description, PublishedAt: aggregate.Timestamp(&published)}}},
		{EventType: eventsv1.EventType_EVENT_TYPE_VIDEO_DELETED, Payload: &eventsv1.Event_Deleted{Deleted: &eventsv1.VideoDeleted{
			VideoId: id, Version: 5, Reason: "rights"}}},
	}
	names := []string{"VideoCreated", "VideoUpdated", "VideoUpdated", "VideoUpdated", "VideoDeleted"}
	events := a.events(v)
	if len(events) != len(want) {
		t.Fatalf("%d events, want %d", len(events), len(want))
	}
	for i, e := range events {
		want[i].AggregateId, want[i].AggregateType, want[i].Version = id, "video", int64(i+1)
		if diff := cmp.Diff(want[i], e.Envelope, ignore); diff != "" {
			t.Errorf("event %d (-want +got):\n%s", i+1, diff)
		}
		if e.Type != names[i] || e.Schema != 1 || e.Aggregate != "video" || e.ID.String() != e.Envelope.GetEventId() ||
			!e.OccurredAt.Equal(e.Envelope.GetOccurredAt().AsTime()) {
			t.Errorf("event %d: the row %+v does not match its envelope", i+1, e)
		}
		if i > 0 && !e.OccurredAt.After(events[i-1].OccurredAt) {
			t.Errorf("event %d occurred at %s, not after the one before", i+1, e.OccurredAt)
		}
	}
	if len(a.wakeups) != len(want) {
		t.Errorf("the relay was woken %d times, want %d", len(a.wakeups), len(want))
	}
}

func TestNoVideoWithoutItsEvent(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	before := a.rows()
	a.exec(`ALTER TABLE video.outbox ADD CONSTRAINT broken CHECK (version < 0) NOT VALID`)
	for _, r := range []reply{
		a.call("POST", "/v1/videos", draft(nil), "Idempotency-Key", "k"),
		a.call("PATCH", path(v), `{"title": "new"}`, "Idempotency-Key", "k"),
		a.call("DELETE", path(v), nil, "Idempotency-Key", "k"),
	} {
		if r.Status != http.StatusInternalServerError || strings.Contains(string(r.Raw), "broken") {
			t.Errorf("got %d %s, want a 500 that keeps the cause to itself", r.Status, r.Raw)
		}
	}
	if after := a.rows(); after != before {
		t.Errorf("rows %+v became %+v", before, after)
	}
	if got := a.call("GET", path(v), nil); got.field("version") != "1" || got.field("title") != v.Title {
		t.Errorf("the video changed without an event: %s", got.Raw)
	}
	if n := len(a.wakeups); n != 1 {
		t.Errorf("the relay was woken %d times, want 1", n)
	}
	a.exec(`ALTER TABLE video.outbox DROP CONSTRAINT broken`)
	if r := a.call("PATCH", path(v), `{"title": "new"}`, "Idempotency-Key", "k"); r.Status != http.StatusOK || r.Header.Get("Idempotency-Replayed") != "" {
		t.Errorf("the key of a failed write was kept: %d %s", r.Status, r.Raw)
	}
}

func TestConcurrentPatchesMakeContiguousVersions(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	const writers, each = 8, 10
	var wg sync.WaitGroup
	var versions sync.Map
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				r := a.patient("PATCH", path(v), map[string]any{"duration_seconds": 1000 + w*each + i})
				if _, again := versions.LoadOrStore(r.field("version"), true); again || r.Status != http.StatusOK {
					t.Errorf("patch: %d, version %s a second time: %t", r.Status, r.field("version"), again)
				}
			}
		})
	}
	wg.Wait()
	now, _, err := a.service.Get(t.Context(), everyone, v.ID)
	if err != nil || now.Version != 1+writers*each {
		t.Fatalf("version %d (%v), want %d", now.Version, err, 1+writers*each)
	}
	a.checkContiguous(now)
}

func TestIfMatchLetsOneOfManyWin(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	var won, lost atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			r := a.patient("PATCH", path(v), map[string]any{"duration_seconds": 100 + i}, "If-Match", `"1"`)
			switch {
			case r.Status == http.StatusOK:
				won.Add(1)
			case r.Status == http.StatusPreconditionFailed && r.field("reason") == "VERSION_MISMATCH":
				lost.Add(1)
			default:
				t.Errorf("got %d %s", r.Status, r.Raw)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 || lost.Load() != 7 {
		t.Errorf("%d won and %d lost, want 1 and 7", won.Load(), lost.Load())
	}
	if r := a.call("PATCH", path(v), `{"title": "x"}`, "If-Match", `"2"`); r.Header.Get("ETag") != `"3"` {
		t.Errorf("If-Match of the current version: %d %s", r.Status, r.Raw)
	}
	for i, list := range [][]string{{"If-Match", `"2", W/"9", "3"`}, {"If-Match", `"x,y"`, "If-Match", `"4",`}} {
		etag := fmt.Sprintf("%q", fmt.Sprint(4+i))
		if r := a.call("PATCH", path(v), fmt.Sprintf(`{"description": "%d"}`, i), list...); r.Header.Get("ETag") != etag {
			t.Errorf("%s: %d %s, want the ETag %s", list, r.Status, r.Raw, etag)
		}
	}
	if r := a.call("DELETE", path(v), nil, "If-Match", `"2"`); r.Status != http.StatusPreconditionFailed || r.field("version") != "5" {
		t.Errorf("stale If-Match of DELETE: %d %s", r.Status, r.Raw)
	}
	r := a.call("DELETE", path(v), nil, "If-Match", `W/"5"`)
	if r.Status != http.StatusPreconditionFailed || !strings.Contains(r.field("detail"), "weak tag never matches") {
		t.Errorf("the weak tag of a proxy: %d %s", r.Status, r.Raw)
	}
	if r := a.call("DELETE", path(v), nil, "If-Match", "*"); r.Status != http.StatusOK {
		t.Errorf("If-Match *: %d %s", r.Status, r.Raw)
	}
}

func TestPatchThatChangesNothing(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	for _, body := range []string{
		`{}`,
		`{"title": "Pompeii"}`,
		`{"title": "Pompeii", "description": "line one\nline two", "duration_seconds": 61, "published_at": "2026-03-04T06:06:07.1234564+01:00"}`,
	} {
		r := a.call("PATCH", path(v), body)
		if r.Status != http.StatusOK || r.field("version") != "1" || r.field("consistency_token") != v.Token() ||
			r.Header.Get("ETag") != `"1"` || r.field("updated_at") != v.UpdatedAt.Format(time.RFC3339Nano) {
			t.Errorf("%s: %d %s", body, r.Status, r.Raw)
		}
	}
	if n := a.rows(); n.Outbox != 1 || len(a.wakeups) != 1 {
		t.Errorf("%d events and %d wake-ups, want 1 of each", n.Outbox, len(a.wakeups))
	}
}

func TestUpdatedAtNeverGoesBackwards(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	ahead := aggregate.Micros(time.Now()).Add(time.Hour)
	a.exec(`UPDATE video.videos SET updated_at = $1`, ahead)
	got, err := a.service.Update(t.Context(), v.ID, []string{"title"}, Video{Title: "later"}, aggregate.WriteOptions{Caller: everyone}, nil)
	if err != nil || !got.Value.UpdatedAt.Equal(ahead.Add(time.Microsecond)) {
		t.Errorf("updated_at is %s (%v), want a microsecond after %s", got.Value.UpdatedAt, err, ahead)
	}
}

func TestTombstoneStays(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	deletion := a.call("DELETE", path(v)+"?reason=spam", nil)
	want := map[string]string{"video_id": v.ID.String(), "version": "2"}
	for name, value := range want {
		if deletion.field(name) != value {
			t.Errorf("DELETE answers %s %s, want %s", name, deletion.field(name), value)
		}
	}
	token, err := consistency.Parse(deletion.field("consistency_token"))
	position := consistency.Position{AggregateType: "video", AggregateID: v.ID.String(), Epoch: 1, Version: 2}
	if err != nil || token.Tenant != "" || !slices.Equal(token.Positions, []consistency.Position{position}) {
		t.Errorf("token %+v (%v)", token, err)
	}
	for _, r := range []reply{
		a.call("GET", path(v), nil), a.call("PATCH", path(v), `{"title": "x"}`), a.call("DELETE", path(v), nil),
		a.call("PATCH", path(v), `{}`, "If-Match", `"1"`),
	} {
		if r.Status != http.StatusGone || r.field("reason") != "VIDEO_DELETED" ||
			r.field("version") != "2" || r.field("deleted_at") != deletion.field("deleted_at") {
			t.Errorf("got %d %s, want a 410 with version and time", r.Status, r.Raw)
		}
	}
	graves, _, err := a.service.GetMany(t.Context(), []string{v.ID.String()})
	if err != nil {
		t.Fatal(err)
	}
	grave := only(t, graves)
	if grave.DeletedAt == nil || !grave.DeletedAt.Equal(grave.UpdatedAt) || !grave.DeletedAt.After(v.UpdatedAt) {
		t.Fatalf("tombstone %+v; want one of after version 1, which was at %s", grave, v.UpdatedAt)
	}
	events := a.events(v)
	if len(events) != 2 || events[1].Envelope.GetDeleted().GetReason() != "spam" ||
		!events[1].Envelope.GetDeleted().GetDeletedAt().AsTime().Equal(*grave.DeletedAt) {
		t.Errorf("events %+v", events)
	}
	unknown := "/v1/videos/" + uuid.NewString()
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		var body any
		if method == "PATCH" {
			body = `{"title": "x"}`
		}
		if r := a.call(method, unknown, body); r.Status != http.StatusNotFound || r.field("reason") != "VIDEO_NOT_FOUND" {
			t.Errorf("%s of an unknown video: %d %s", method, r.Status, r.Raw)
		}
	}
}
