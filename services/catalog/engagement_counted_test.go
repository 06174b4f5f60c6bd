package catalog

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
)

// engaged is a video with one engagement at version 1: liked, and watched for a second.
func engaged(t *testing.T) (*fixture, like) {
	t.Helper()
	f, l := setUp(t), newLike()
	f.must(t, inbox.Applied, createdEvent(l.video, 1, "title"), l.put(1))
	return f, l
}

// wantCounters reads the video alone, and then in a list, with a token.
func (f *fixture) wantCounters(t *testing.T, l like, q consistency.Request, source Source, want Counters, stale ...consistency.StaleAggregate) {
	t.Helper()
	required := requirementOn(t, q)
	a, err := f.service.Get(t.Context(), everyone, l.video, required)
	if diff := cmp.Diff(stale, a.Stale); err != nil || a.Counters != want || a.Source != source || diff != "" {
		t.Errorf("alone: %+v from %q, %v; want %+v from %q; stale (-want +got):\n%s", a.Counters, a.Source, err, want, source, diff)
	}
	p, err := f.service.List(t.Context(), Query{Caller: everyone, UploaderID: a.UploaderID.String()}, required)
	if diff := cmp.Diff(stale, p.Stale); err != nil || len(p.Videos) != 1 || p.Videos[0].Counters != want || diff != "" {
		t.Errorf("in a list: %+v, %v; want %+v; stale (-want +got):\n%s", p.Videos, err, want, diff)
	}
}

// The read of a video shows the effects of the engagements that the token names, although their
// events have not come: their owner's state is counted.
func TestAnEngagementsTokenCoversTheCounters(t *testing.T) {
	t.Parallel()
	f, l := engaged(t)
	f.wantCounters(t, l, consistency.Request{Token: l.token(1)}, SourceProjection, Counters{LikeCount: 1, TotalWatchedSeconds: 1})
	unasked(t, f)
	f.peer.hasLike(l.owners(2))
	f.wantCounters(t, l, consistency.Request{Token: l.token(2)}, SourceAuthority, Counters{BookmarkCount: 1, TotalWatchedSeconds: 2})
	f.peer.hasLike(l.ownersGrave(3))
	f.wantCounters(t, l, consistency.Request{Token: l.token(3)}, SourceAuthority, Counters{})

	// A token may name engagements of several users, and of other videos.
	second, elsewhere := like{uuid.New(), l.video}, newLike()
	f.peer.hasLike(l.owners(4))
	f.peer.hasLike(second.owners(5))
	f.peer.hasLike(elsewhere.owners(1))
	if _, _, err := f.get(t.Context(), l.video, requirementOn(t, consistency.Request{Token: elsewhere.token(1)})); err != nil {
		t.Error(err)
	}
	f.wantStored(t, elsewhere, Engagement{})
	session := tokenOf(l.position(4), second.position(5), elsewhere.position(1), position(l.video, 1))
	f.wantCounters(t, l, consistency.Request{Token: session}, SourceAuthority, Counters{LikeCount: 1, BookmarkCount: 1, TotalWatchedSeconds: 9})
	f.wantStored(t, elsewhere, elsewhere.row(1)) // by the list, which may show any video

	for _, read := range []func(consistency.Requirement) error{
		func(r consistency.Requirement) error {
			_, err := f.service.Get(t.Context(), everyone, l.video, r)
			return err
		},
		func(r consistency.Requirement) error {
			_, err := f.service.List(t.Context(), Query{Caller: everyone}, r)
			return err
		},
	} {
		wantProblem(t, read(requirementOn(t, consistency.Request{Token: l.token(9)})), problem.CodeAhead, "TOKEN_AHEAD")
	}
}

// The event ends the wait.
func TestAReadOfAVideoWaitsForAnEngagement(t *testing.T) {
	t.Parallel()
	f, l := engaged(t)
	f.peer.fails(status.Error(codes.Unavailable, "away"))
	f.whileWaiting(t, func() {
		required := requirementOn(t, consistency.Request{Token: l.token(2), Wait: 10 * time.Second})
		a, err := f.service.Get(t.Context(), everyone, l.video, required)
		if want := (Counters{BookmarkCount: 1, TotalWatchedSeconds: 2}); err != nil || a.Counters != want {
			t.Errorf("%+v, %v; want %+v", a.Counters, err, want)
		}
	}, func() { f.must(t, inbox.Applied, l.put(2)) })
}

func TestCountersWithoutAnOwnerOfTheEngagement(t *testing.T) {
	t.Parallel()
	f, l := engaged(t)
	f.peer.fails(status.Error(codes.Unavailable, "away"))
	_, err := f.service.Get(t.Context(), everyone, l.video, requirementOn(t, consistency.Request{Token: l.token(2)}))
	wantProblem(t, err, problem.CodeUnavailable, "NOT_FRESH_ENOUGH")
	lag := consistency.StaleAggregate{ID: l.id(), Version: 1, AtLeast: 2}
	for _, q := range []consistency.Request{{Token: l.token(2), StaleIfError: true}, {Token: l.token(2), Mode: consistency.MinimizeLatency}} {
		f.wantCounters(t, l, q, SourceProjection, Counters{LikeCount: 1, TotalWatchedSeconds: 1}, lag)
	}
}

// The counters of a deleted video are not shown, so nothing is waited for.
func TestADeletedVideoNeedsNoEngagement(t *testing.T) {
	t.Parallel()
	f, l := engaged(t)
	f.must(t, inbox.Applied, deletedEvent(l.video, 2))
	f.peer.fails(status.Error(codes.Unavailable, "away"))
	token := tokenOf(position(l.video, 1), l.position(9))
	a, err := f.service.Get(t.Context(), everyone, l.video, requirementOn(t, consistency.Request{Token: token, Wait: patience}))
	wantProblem(t, err, problem.CodeGone, "VIDEO_DELETED")
	if a.Version != 2 {
		t.Errorf("version %d in the metadata", a.Version)
	}
	unasked(t, f)

	f.peer.fails(nil) // the owner has the deletion of another video first, and no such engagement
	other := like{l.user, newVideoID()}
	f.must(t, inbox.Applied, createdEvent(other.video, 1, "title"))
	f.peer.has(ownersTombstone(other.video, 2))
	token = tokenOf(position(other.video, 2), other.position(9))
	_, err = f.service.Get(t.Context(), everyone, other.video, requirementOn(t, consistency.Request{Token: token}))
	wantProblem(t, err, problem.CodeGone, "VIDEO_DELETED")
}

// The event of a video may come after that of an engagement with it.
func TestAnEngagementSaysThatItsVideoExists(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newLike()
	f.must(t, inbox.Applied, l.put(1))
	f.peer.has(ownersVideo(l.video, 1, "title"))
	a, err := f.service.Get(t.Context(), everyone, l.video, requirementOn(t, consistency.Request{Token: l.token(1)}))
	if err != nil || a.Source != SourceAuthority || a.Title != "title" || a.LikeCount != 1 {
		t.Errorf("%+v, %v", a, err)
	}
	_, err = f.service.Get(t.Context(), everyone, l.video, requirementOn(t, consistency.Request{Token: l.token(1), Mode: consistency.MinimizeLatency}))
	wantProblem(t, err, problem.CodeNotFound, "VIDEO_NOT_FOUND")
	if got := problem.From(err).Extra["at_least"]; got != int64(1) {
		t.Errorf("a reader who does not wait is told at_least %v, want 1", got)
	}

	// An owner that knows no such video has the last word.
	lost := like{l.user, newVideoID()}
	f.must(t, inbox.Applied, lost.put(1))
	f.peer.isInEpoch(1)
	_, err = f.service.Get(t.Context(), everyone, lost.video, requirementOn(t, consistency.Request{Token: lost.token(1)}))
	wantProblem(t, err, problem.CodeNotFound, "VIDEO_NOT_FOUND")

	f.peer.fails(status.Error(codes.Unavailable, "away"))
	f.whileWaiting(t, func() {
		a, err := f.service.Get(t.Context(), everyone, l.video, requirementOn(t, consistency.Request{Token: l.token(1), Wait: 10 * time.Second}))
		if err != nil || a.Source != SourceProjection || a.LikeCount != 1 {
			t.Errorf("the event of the video has not ended the wait: %+v, %v", a, err)
		}
	}, func() { f.must(t, inbox.Applied, createdEvent(l.video, 1, "title")) })
}

// A video of an earlier epoch than its engagement is there all the same.
func TestAnEngagementOfALaterEpochThanItsVideo(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newLike()
	put := l.put(1)
	put.Epoch = 2
	f.must(t, inbox.Applied, createdEvent(l.video, 1, "title"), put)
	at := l.position(1)
	at.Epoch = 2
	a, err := f.service.Get(t.Context(), everyone, l.video, requirementOn(t, consistency.Request{Token: tokenOf(at)}))
	if err != nil || a.Source != SourceProjection || a.LikeCount != 1 {
		t.Errorf("%+v, %v", a, err)
	}
	unasked(t, f)
}

// A request with two kinds of positions is one read: it waits once, and counts once.
func TestPositionsOfTwoKindsAreOneRead(t *testing.T) {
	t.Parallel()
	f, l := engaged(t)
	f.peer.hasLike(l.owners(2))
	f.peer.has(ownersVideo(l.video, 2, "second"))
	token := tokenOf(position(l.video, 2), l.position(2))
	a, err := f.service.Get(t.Context(), everyone, l.video, requirementOn(t, consistency.Request{Token: token}))
	if want := (Counters{BookmarkCount: 1, TotalWatchedSeconds: 2}); err != nil || a.Version != 2 || a.Source != SourceAuthority || a.Counters != want {
		t.Errorf("%+v, %v", a, err)
	}
	f.must(t, inbox.Applied, titled(l.video, 2, "second"))
	f.whileWaiting(t, func() {
		token := tokenOf(position(l.video, 3), l.position(3))
		a, err := f.service.Get(t.Context(), everyone, l.video, requirementOn(t, consistency.Request{Token: token, Wait: 10 * time.Second}))
		if err != nil || a.Version != 3 || a.Source != SourceProjection || a.TotalWatchedSeconds != 3 {
			t.Errorf("%+v, %v", a, err)
		}
	}, func() { f.must(t, inbox.Applied, l.put(3), titled(l.video, 3, "third")) })
}

// A reader of the owner's own state gets that, although the projection has what the token names.
func TestTheOwnersVideoWithAnEngagement(t *testing.T) {
	t.Parallel()
	f, l := engaged(t)
	f.peer.has(ownersVideo(l.video, 2, "second"))
	a, err := f.service.Get(t.Context(), everyone, l.video, requirementOn(t, consistency.Request{Token: l.token(1), Mode: consistency.FullyConsistent}))
	if err != nil || a.Version != 2 || a.Source != SourceAuthority || a.LikeCount != 1 {
		t.Errorf("%+v, %v", a, err)
	}
}

// The read model's table refuses the engagement that the token names. The counters lack it, so the read of the video refuses, or
// says what the counters lack.
func TestACountedEngagementThatIsRefused(t *testing.T) {
	t.Parallel()
	f, l := engaged(t)
	pgtest.Exec(t, f.admin, `ALTER TABLE catalog.video_user_engagements_projection ADD CONSTRAINT fork CHECK (version < 2)`)
	f.peer.hasLike(l.owners(2))
	_, err := f.service.Get(t.Context(), everyone, l.video, requirementOn(t, consistency.Request{Token: l.token(2)}))
	wantProblem(t, err, problem.CodeUnavailable, "NOT_FRESH_ENOUGH")
	a, err := f.service.Get(t.Context(), everyone, l.video, requirementOn(t, consistency.Request{Token: l.token(2), StaleIfError: true}))
	if err != nil || a.TotalWatchedSeconds != 1 || len(a.Stale) != 1 || a.Stale[0].AtLeast != 2 {
		t.Errorf("%+v, %v", a, err)
	}
}

// An owner that is silent about engagements is left alone, as one that is silent about videos is.
func TestASilentOwnerOfEngagementsIsLeftAlone(t *testing.T) {
	t.Parallel()
	f, l := engaged(t)
	f.peer.hangs()
	required := requirementOn(t, consistency.Request{Token: l.token(2)})
	var readers sync.WaitGroup
	for range 10 {
		readers.Go(func() { _, _ = f.service.Get(t.Context(), everyone, l.video, required) })
	}
	readers.Wait()
	// On a busy machine the circuit may be due to try the owner again. The read after that is refused at once.
	var err error
	for range 3 {
		_, err = f.service.Get(t.Context(), everyone, l.video, required)
		wantProblem(t, err, problem.CodeUnavailable, "NOT_FRESH_ENOUGH")
		if strings.Contains(problem.From(err).Error(), "circuit") {
			return
		}
	}
	t.Errorf("the owner is asked again and again: %v", err)
}

// The answer to a forged token does not tell whether another user has an engagement, and the owner
// is not asked for it.
func TestATokenOfAnothersEngagementSaysNothing(t *testing.T) {
	t.Parallel()
	f, l := engaged(t)
	f.peer.hasLike(l.owners(2))
	required := requirementOn(t, consistency.Request{Token: l.token(2)})
	seconds := func(caller auth.Principal) int64 {
		a, err := f.service.Get(t.Context(), caller, l.video, required)
		if err != nil {
			t.Errorf("%+v: %v", caller, err)
		}
		return a.TotalWatchedSeconds
	}
	for _, other := range []auth.Principal{
		{Kind: auth.User, User: uuid.New(), Tenant: eventing.DefaultTenant}, {Kind: auth.Service, Service: "s", Tenant: eventing.DefaultTenant},
	} {
		if got := seconds(other); got != 1 {
			t.Errorf("%+v has made catalog fetch another's engagement: %d seconds", other, got)
		}
		// Nor does it tell by a question about the video.
		absent := like{l.user, newVideoID()}
		_, err := f.service.Get(t.Context(), other, absent.video, requirementOn(t, consistency.Request{Token: absent.token(1)}))
		wantProblem(t, err, problem.CodeNotFound, "VIDEO_NOT_FOUND")
	}
	unasked(t, f)
	if got := seconds(auth.Principal{Kind: auth.User, User: l.user, Tenant: eventing.DefaultTenant}); got != 2 {
		t.Errorf("the user reads %d seconds, want 2", got)
	}
}

func (p *peer) isInEpoch(epoch int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epoch = epoch
}
