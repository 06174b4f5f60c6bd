package catalog

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	engagementv1 "example.com/lockstep/proto/engagement/events/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

// TestANewBuildCompletesEngagements is TestANewBuildCompletesRows of engagements.
func TestANewBuildCompletesEngagements(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	likes := []like{newLike(), newLike(), newLike()}
	for _, l := range likes {
		f.must(t, inbox.Applied, l.put(1))
		e := l.owners(1)
		e.WatchedSeconds, e.LastEventId = 77, eventID(l.id(), 1).String()
		f.peer.hasLike(e)
	}
	_, err := f.admin.Exec(t.Context(), `UPDATE catalog.video_user_engagements_projection SET revision = revision - 1, incomplete = true`)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.projector.engagements.Complete(ctx, func() {}) }()
	eventually(t, func() bool {
		return f.countRows(t, `SELECT count(*) FROM video_user_engagements_projection WHERE incomplete`) == 0
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	const taken = `SELECT count(*) FROM video_user_engagements_projection WHERE watched_seconds = 77 AND revision = $1`
	if n := f.countRows(t, taken, engagementRevision); n != len(likes) {
		t.Errorf("%d engagements have their owner's state", n)
	}
	if n, err := (engagements{db: f.pool}).CountIncomplete(t.Context(), 10); err != nil || n != 0 {
		t.Errorf("%d incomplete engagements, %v", n, err)
	}
}

func TestEveryFieldOfAnEngagementIsApplied(t *testing.T) {
	t.Parallel()
	l := newLike()
	put := func(m proto.Message) any {
		return engagements{}.Apply(Engagement{}, inbox.Change{Kind: inbox.Put, Payload: m, Event: l.put(1)})
	}
	everyFieldIsApplied(t, &engagementv1.EngagementPut{}, put)
	everyFieldIsApplied(t, &engagementv1.EngagementDeleted{}, put)
	everyFieldIsApplied(t, &videov1.Engagement{UserId: l.user.String(), VideoId: l.video.String(), Version: 1, Epoch: 1}, func(m proto.Message) any {
		e, err := ownedEngagement(m.(*videov1.Engagement), l.user, l.video)
		if err != nil {
			t.Fatal(err)
		}
		return e
	})
}

func anotherEngagement(e eventing.Event, previous uuid.UUID) eventing.Event {
	var engagement engagementv1.Event
	e = moved(e, previous)
	_ = proto.Unmarshal(e.Payload, &engagement)
	engagement.EventId = e.ID.String()
	return withEngagement(e, &engagement)
}

func TestAnEngagementOfAnotherHistory(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newLike()
	f.must(t, inbox.Applied, l.put(1), withPrevious(l.put(2)))
	for _, e := range []eventing.Event{
		anotherEngagement(l.put(2), eventID(l.id(), 1)), anotherEngagement(l.put(3), another(l.id(), 2)), anotherEngagement(l.deleted(1), uuid.Nil),
	} {
		f.must(t, inbox.Diverged, e)
	}
	has := &videov1.Engagement{
		UserId: l.user.String(), VideoId: l.video.String(), Liked: true, Version: 2, Epoch: 1, CreatedAt: pb(1), UpdatedAt: pb(62),
		LastEventId: another(l.id(), 2).String(),
	}
	f.peer.hasLike(has)
	e := anotherEngagement(l.put(2), eventID(l.id(), 1))
	if err := f.projector.engagements.Repair(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if row := f.stored(t, l); row.Version != 2 || !row.Liked {
		t.Errorf("row %+v", row)
	}
	f.must(t, inbox.Stale, e)
	f.must(t, inbox.Applied, anotherEngagement(l.put(3), another(l.id(), 2)))
	f.must(t, inbox.Diverged, withPrevious(l.put(3)))
}

// A user's engagements are read by this user, admins, and callers of a service that runs
// open; a page token by the caller that it was given to.
func TestEngagementsAreReadByTheirUser(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	user := uuid.New()
	for range 2 {
		f.must(t, inbox.Applied, like{user: user, video: newVideoID()}.put(1))
	}
	admitted := []auth.Principal{{Kind: auth.User, User: user, Tenant: eventing.DefaultTenant}, {Kind: auth.User, User: uuid.New(), Admin: true, Tenant: eventing.DefaultTenant}, everyone}
	refused := []auth.Principal{{}, {Kind: auth.User, Tenant: eventing.DefaultTenant}, {Kind: auth.User, User: uuid.New(), Tenant: eventing.DefaultTenant}, {Kind: auth.Service, Service: "s", Tenant: eventing.DefaultTenant}}
	for _, caller := range refused {
		q := EngagementQuery{UserID: user.String(), PageSize: 1, Caller: caller}
		page, err := f.service.ListEngagements(t.Context(), q, consistency.Requirement{})
		if p := problem.From(err); p == nil || p.Code != problem.CodeDenied || len(page.Engagements) > 0 {
			t.Errorf("%+v: %+v, %v", caller, page, err)
		}
	}
	for _, given := range admitted {
		q := EngagementQuery{UserID: user.String(), PageSize: 1, Caller: given}
		page, err := f.service.ListEngagements(t.Context(), q, consistency.Requirement{})
		if err != nil || page.Next == "" {
			t.Fatalf("%+v: %+v, %v", given, page, err)
		}
		q.PageToken = page.Next
		for _, caller := range admitted {
			q.Caller = caller
			_, err := f.service.ListEngagements(t.Context(), q, consistency.Requirement{})
			checkToken(t, given, caller, err)
		}
	}
}

// TestPositionsOfAnyEngagement is TestPositionsOfAnyID of engagements.
func TestPositionsOfAnyEngagement(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newLike()
	f.must(t, inbox.Applied, l.put(3))
	var wanted []consistency.Position
	for _, id := range []string{l.id(), l.video.String(), "\x00", newLike().id()} {
		wanted = append(wanted, consistency.Position{AggregateType: engagementType, AggregateID: id})
	}
	found, err := Positions(t.Context(), f.pool, wanted)
	if diff := cmp.Diff([]consistency.Position{l.position(3)}, found); err != nil || diff != "" {
		t.Errorf("%v, positions (-want +got):\n%s", err, diff)
	}
}

func TestPlansOfBatchesOutliveTheTableOfEngagements(t *testing.T) {
	t.Parallel()
	batchesReadFewPages(t, engagementStore, `
		INSERT INTO catalog.video_user_engagements_projection (user_id, video_id, version, epoch, created_at, updated_at, tenant_id)
		SELECT gen_random_uuid(), `+manyIDs+`, `+manyRows)
}

func TestRepairWaitsForAnOwnerWithoutAYoungEngagement(t *testing.T) {
	t.Parallel()
	waitsForAnOwnerThatIsBehind(t, newLike().put(4))
}

func (f *fixture) countRows(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	return pgtest.Value[int](t, f.pool, sql, args...)
}
