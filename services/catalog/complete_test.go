package catalog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

// newer is m as a newer build writes it: with a field that this build does not know.
func newer[M proto.Message](m M) M {
	m.ProtoReflect().SetUnknown([]byte{0xf8, 0x7f, 1}) // field 2047: 1
	return m
}

// completeness is that of a video's row.
func (f *fixture) completeness(t *testing.T, id uuid.UUID) (c inbox.Completeness) {
	t.Helper()
	rows, _ := f.pool.Query(t.Context(), `SELECT revision, incomplete FROM video_projection WHERE video_id = $1`, id)
	c, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[inbox.Completeness])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// An event that says more than this build understands is applied for what is known, and
// the row remembers that it lacks the rest.
func TestARowRemembersWhatItLacks(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	title := "third"
	unknownPayload := updatedEvent(uuid.Nil, 2, newer(&eventsv1.VideoUpdated{Title: &title}))
	envelope := func(e *eventsv1.Event, id uuid.UUID) eventing.Event { return event("VideoUpdated", id, 2, e) }
	for _, c := range []struct {
		name       string
		event      func(id uuid.UUID) eventing.Event
		incomplete bool
	}{
		{"nothing unknown", func(id uuid.UUID) eventing.Event { return titled(id, 2, "third") }, false},
		{"a field of the payload", func(id uuid.UUID) eventing.Event {
			return updatedEvent(id, 2, newer(&eventsv1.VideoUpdated{Title: &title}))
		}, true},
		{"a field of the envelope", func(id uuid.UUID) eventing.Event {
			return envelope(newer(&eventsv1.Event{Payload: &eventsv1.Event_Updated{
				Updated: &eventsv1.VideoUpdated{VideoId: id.String(), Version: 2, Title: &title},
			}}), id)
		}, true},
		{"a cleared field", func(id uuid.UUID) eventing.Event {
			return updatedEvent(id, 2, &eventsv1.VideoUpdated{Title: &title, Cleared: []string{"description", "language"}})
		}, true},
		{"an additive type", func(id uuid.UUID) eventing.Event {
			return event("VideoTagged", id, 2, newer(&eventsv1.Event{Additive: true}))
		}, true},
	} {
		id := newVideoID()
		f.must(t, inbox.Applied, createdEvent(id, 1, "first"), c.event(id))
		want := inbox.Completeness{Revision: videoRevision, Incomplete: c.incomplete}
		if got := f.completeness(t, id); got != want {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
		if v := f.row(t, id); v.Version != 2 || v.Title != "third" && c.name != "an additive type" {
			t.Errorf("%s: %+v", c.name, v)
		}
		// The rest stays unknown after an update that is known, and until the video is deleted.
		f.must(t, inbox.Applied, titled(id, 3, "fourth"))
		if got := f.completeness(t, id); got != want {
			t.Errorf("%s, and another update: %+v, want %+v", c.name, got, want)
		}
		f.must(t, inbox.Applied, deletedEvent(id, 4))
		if got := f.completeness(t, id); got.Incomplete {
			t.Errorf("%s, and a deletion: %+v", c.name, got)
		}
	}
	// So does a row that was taken from a newer owner.
	id := newVideoID()
	f.peer.has(newer(ownersVideo(id, 6, "sixth")))
	if err := f.projector.videos.Repair(t.Context(), titled(id, 4, "fourth")); err != nil {
		t.Fatal(err)
	}
	if got, want := f.completeness(t, id), (inbox.Completeness{Revision: videoRevision, Incomplete: true}); got != want {
		t.Errorf("the owner's row has an unknown field: %+v, want %+v", got, want)
	}

	other := unknownPayload
	other.Type = "VideoTagged"
	if _, err := f.apply(t, other); !errors.Is(err, inbox.ErrUnknown) {
		t.Errorf("a type that is not additive: %v", err)
	}
}

// The rows that an older build has left incomplete take the owner's state, of the same
// version; those that this build has left so wait for the next.
func TestANewBuildCompletesRows(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	old, own := newVideoID(), newVideoID()
	for _, id := range []uuid.UUID{old, own} {
		f.must(t, inbox.Applied, createdEvent(id, 1, "first"), updatedEvent(id, 2, newer(&eventsv1.VideoUpdated{})))
		v := ownersVideo(id, 2, "with the new field")
		v.LastEventId = eventID(id.String(), 2).String()
		f.peer.has(v)
	}
	pgtest.Exec(t, f.admin, `UPDATE catalog.video_projection SET revision = revision - 1 WHERE video_id = $1`, old)
	ids, err := videos{db: f.pool}.Incomplete(t.Context(), "", 10)
	if diff := cmp.Diff([]string{old.String()}, ids); err != nil || diff != "" {
		t.Errorf("%v, incomplete rows of an older build (-want +got):\n%s", err, diff)
	}
	var said bytes.Buffer
	f.projector = NewProjector(f.pool, f.owner, f.waiters, slog.New(slog.NewTextHandler(&said, nil)))
	f.peer.fails(status.Error(codes.Unavailable, "not yet"))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.projector.videos.Complete(ctx, func() {}) }()
	<-f.peer.asked
	f.peer.fails(nil)
	eventually(t, func() bool { return !f.completeness(t, old).Incomplete })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if v := f.row(t, old); v.Title != "with the new field" || v.Version != 2 {
		t.Errorf("%+v", v)
	}
	if v, c := f.row(t, own), f.completeness(t, own); v.Title != "first" || c != (inbox.Completeness{Revision: videoRevision, Incomplete: true}) {
		t.Errorf("a row that this build has left incomplete: %+v %+v", v, c)
	}
	for line := range strings.Lines(said.String()) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "level=WARN") && !strings.Contains(line, "not yet") {
			t.Error(line)
		}
	}
	if n, err := (videos{db: f.pool}).CountIncomplete(t.Context(), 10); err != nil || n != 1 {
		t.Errorf("%d incomplete videos, %v", n, err)
	}
}

// A row that another transaction has locked holds up no other row that is to be completed.
func TestALockedRowHoldsUpNoCompletion(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	locked, other := newVideoID(), newVideoID()
	for _, id := range []uuid.UUID{locked, other} {
		f.must(t, inbox.Applied, createdEvent(id, 1, "first"), updatedEvent(id, 2, newer(&eventsv1.VideoUpdated{})))
		v := ownersVideo(id, 2, "with the new field")
		v.LastEventId = eventID(id.String(), 2).String()
		f.peer.has(v)
	}
	pgtest.Exec(t, f.admin, `UPDATE catalog.video_projection SET revision = revision - 1`)
	holder := pgtest.Begin(t, f.admin)
	defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, holder, `SELECT FROM catalog.video_projection WHERE video_id = $1 FOR UPDATE`, locked)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.projector.videos.Complete(ctx, func() {}) }()
	eventually(t, func() bool { return !f.completeness(t, other).Incomplete })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !f.completeness(t, locked).Incomplete {
		t.Error("the locked row is complete")
	}
}

// What a build knows of the contract, it applies: else a row would count as complete, and
// no later build would bring it up to date.
func TestEveryFieldOfTheContractIsApplied(t *testing.T) {
	t.Parallel()
	id := newVideoID()
	before := videos{}.Apply(Video{}, mustDecode(t, videos{}, createdEvent(id, 1, "first")))
	updated := func(m proto.Message) any {
		return videos{}.Apply(before, inbox.Change{Kind: inbox.Updated, Payload: m, Event: titled(id, 2, "")})
	}
	everyFieldIsApplied(t, &eventsv1.VideoCreated{UploaderId: uuid.NewString()}, updated)
	everyFieldIsApplied(t, &eventsv1.VideoUpdated{}, updated)
	everyFieldIsApplied(t, &eventsv1.VideoDeleted{}, updated)
	everyFieldIsApplied(t, &videov1.Video{VideoId: id.String(), UploaderId: uuid.NewString(), Version: 1, Epoch: 1}, func(m proto.Message) any {
		v, err := ownedVideo(m.(*videov1.Video), id.String())
		if err != nil {
			t.Fatal(err)
		}
		return v
	})
}

// notInRows are in the attributes, say when and why, or are the position of a row.
var notInRows = []string{
	"event_id", "event_type", "aggregate_id", "aggregate_type", "version", "occurred_at", "additive", "created", "updated", "deleted", "put",
	"video_id", "user_id", "reason", "epoch", "last_event_id", "updated_at",
}

// everyFieldIsApplied sets each field of m that belongs into a row, and expects another row.
func everyFieldIsApplied(t *testing.T, m proto.Message, apply func(m proto.Message) any) {
	t.Helper()
	fields := m.ProtoReflect().Descriptor().Fields()
	without := apply(proto.Clone(m))
	for i := range fields.Len() {
		field := fields.Get(i)
		if slices.Contains(notInRows, string(field.Name())) {
			continue
		}
		with := proto.Clone(m)
		setField(with.ProtoReflect(), field)
		if cmp.Equal(m, with, protocmp.Transform()) {
			t.Fatalf("%s is not set", field.FullName())
		}
		if cmp.Equal(without, apply(with)) {
			t.Errorf("%s changes no row", field.FullName())
		}
	}
}

// setField gives a field a value that none of this test's messages has.
func setField(m protoreflect.Message, field protoreflect.FieldDescriptor) {
	value := map[protoreflect.Kind]protoreflect.Value{
		protoreflect.StringKind: protoreflect.ValueOfString("description"),
		protoreflect.Int64Kind:  protoreflect.ValueOfInt64(4711),
		protoreflect.BoolKind:   protoreflect.ValueOfBool(true),
	}[field.Kind()]
	switch {
	case field.Name() == "uploader_id":
		value = protoreflect.ValueOfString(uuid.NewString())
	case field.IsList():
		m.Mutable(field).List().Append(value)
		return
	case field.Kind() == protoreflect.MessageKind: // a time
		value = protoreflect.ValueOfMessage(pb(4711).ProtoReflect())
	}
	m.Set(field, value)
}

func mustDecode(t *testing.T, a interface {
	Decode(e eventing.Event) (inbox.Change, error)
}, e eventing.Event,
) inbox.Change {
	t.Helper()
	c, err := a.Decode(e)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
