package catalog

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
)

// long is a wait that the test itself ends: if it passed, the owner would be asked, and
// the test would notice that.
const long = consistency.MaxWait

// wantProblem fails unless err is a problem with code and reason.
func wantProblem(t testing.TB, err error, code problem.Code, reason string) *problem.Error {
	t.Helper()
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Code != code || p.Reason != reason {
		t.Fatalf("error %v; want reason %s", err, reason)
	}
	return p
}

func wantVersion(t testing.TB, v Video, source Source, err error, version int64, from Source) {
	t.Helper()
	if err != nil || v.Version != version || source != from {
		t.Fatalf("version %d from %q, %v; want version %d from %q", v.Version, source, err, version, from)
	}
}

func unasked(t testing.TB, f *fixture) {
	t.Helper()
	select {
	case <-f.peer.asked:
		t.Error("the owner was asked")
	default:
	}
}

func TestGetWithoutToken(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	_, _, err := f.get(t.Context(), id, consistency.Requirement{})
	wantProblem(t, err, problem.CodeNotFound, "VIDEO_NOT_FOUND")

	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	f.peer.has(ownersVideo(id, 9, "ninth"))
	v, source, err := f.get(t.Context(), id, consistency.Requirement{})
	wantVersion(t, v, source, err, 1, SourceProjection)

	f.must(t, inbox.Applied, deletedEvent(id, 2))
	_, _, err = f.get(t.Context(), id, consistency.Requirement{})
	gone := wantProblem(t, err, problem.CodeGone, "VIDEO_DELETED")
	if gone.Extra["version"] != int64(2) || gone.Extra["deleted_at"] != at(2) || gone.Extra["source"] != SourceProjection {
		t.Errorf("extra %v", gone.Extra)
	}
	unasked(t, f)
}

func TestGetAnswersAtOnceWhatTheProjectionHas(t *testing.T) {
	t.Parallel()
	f, id := setUpWith(t, 0), newVideoID() // no reader may wait here
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"), titled(id, 2, "second"))
	for version := range int64(2) {
		v, source, err := f.get(t.Context(), id, require(t, id, version+1, long))
		wantVersion(t, v, source, err, 2, SourceProjection)
	}
	v, source, err := f.get(t.Context(), id, require(t, newVideoID(), 99, long))
	wantVersion(t, v, source, err, 2, SourceProjection) // another video's token
	f.must(t, inbox.Applied, deletedEvent(id, 3))
	_, _, err = f.get(t.Context(), id, require(t, id, 2, long))
	wantProblem(t, err, problem.CodeGone, "VIDEO_DELETED")
	unasked(t, f)
}

func TestGetWaitsForTheEvent(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	r := require(t, id, 2, long)
	f.whileWaiting(t, func() {
		v, source, err := f.get(t.Context(), id, r)
		if err != nil || v.Version != 2 || source != SourceProjection {
			t.Errorf("version %d from %q, %v; want 2 from the projection", v.Version, source, err)
		}
	}, func() { f.must(t, inbox.Applied, titled(id, 2, "second")) })
	unasked(t, f)
}

func TestGetAsksTheOwnerWhenTheWaitIsOver(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	short := 30 * time.Millisecond
	for _, wait := range []time.Duration{0, short} {
		t.Run(wait.String(), func(t *testing.T) {
			id := newVideoID()
			get := func(version int64) (Video, Source, error) {
				return f.get(t.Context(), id, require(t, id, version, wait))
			}
			_, _, err := get(1)
			wantProblem(t, err, problem.CodeAhead, "TOKEN_AHEAD") // the owner does not know this video

			f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
			f.peer.has(ownersVideo(id, 3, "third"))
			for version := int64(2); version <= 3; version++ {
				v, source, err := get(version)
				wantVersion(t, v, source, err, 3, SourceAuthority)
			}
			if v := f.row(t, id); v.Version != 1 {
				t.Errorf("a read moved the projection to version %d", v.Version)
			}
			_, _, err = get(4)
			wantProblem(t, err, problem.CodeAhead, "TOKEN_AHEAD")

			f.peer.has(ownersTombstone(id, 4))
			_, _, err = get(4)
			gone := wantProblem(t, err, problem.CodeGone, "VIDEO_DELETED")
			if gone.Extra["version"] != int64(4) || gone.Extra["source"] != SourceAuthority {
				t.Errorf("extra %v", gone.Extra)
			}
			_, _, err = get(5)
			wantProblem(t, err, problem.CodeAhead, "TOKEN_AHEAD")

			f.peer.fails(status.Error(codes.Unavailable, "away"))
			defer f.peer.fails(nil)
			_, _, err = get(2)
			if p := wantProblem(t, err, problem.CodeUnavailable, "NOT_FRESH_ENOUGH"); p.RetryAfter <= 0 {
				t.Error("no Retry-After")
			}
			v, source, err := get(1) // the rows of the copy are still served
			wantVersion(t, v, source, err, 1, SourceProjection)
		})
	}
}

// A token of a later epoch requires that epoch of the owner, at any version of this one.
func TestEpochComesBeforeVersion(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"), titled(id, 2, "second"))
	later := position(id, 1)
	later.Epoch = 2
	d := requirementOn(t, consistency.Request{Token: tokenOf(later)})
	_, _, err := f.get(t.Context(), id, d)
	wantProblem(t, err, problem.CodeAhead, "TOKEN_AHEAD")
	restored := ownersVideo(id, 1, "restored")
	restored.Epoch = 2
	f.peer.has(restored)
	v, source, err := f.get(t.Context(), id, d)
	wantVersion(t, v, source, err, 1, SourceAuthority)
}

// The owner was restored to a time before the write of the token. The restored owner's
// state is all that there will ever be, and the answer.
func TestTokenFromBeforeARestore(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	restored := ownersVideo(id, 2, "restored")
	restored.Epoch = 2
	f.peer.has(restored)
	lost := require(t, id, 9, 0)
	a, err := f.service.Get(t.Context(), everyone, id, lost)
	wantVersion(t, a.Video, a.Source, err, 2, SourceAuthority)
	page, err := f.service.List(t.Context(), Query{Caller: everyone}, lost)
	if err != nil || page.Source != SourceAuthority || len(page.Videos) != 1 || page.Videos[0].Version != 2 {
		t.Errorf("list: %+v, %v", page, err)
	}
	v, source, err := f.get(t.Context(), id, lost)
	wantVersion(t, v, source, err, 2, SourceProjection) // the list has brought it forward
	next := requirementOn(t, consistency.Request{Token: a.metadata()["consistency-token"]})
	v, source, err = f.get(t.Context(), id, next)
	wantVersion(t, v, source, err, 2, SourceProjection)
}

func TestTheWaitEnds(t *testing.T) {
	t.Parallel()
	t.Run("with the request", func(t *testing.T) {
		t.Parallel()
		f, id := setUp(t), newVideoID()
		ctx, cancel := context.WithCancel(t.Context())
		d := require(t, id, 1, long)
		f.whileWaiting(t, func() {
			if _, _, err := f.get(ctx, id, d); !errors.Is(err, context.Canceled) {
				t.Errorf("%v; want that the caller has gone away", err)
			}
		}, cancel)
		unasked(t, f)
	})
	t.Run("when the server drains", func(t *testing.T) {
		t.Parallel()
		f, id := setUp(t), newVideoID()
		f.peer.has(ownersVideo(id, 1, "first"))
		d := require(t, id, 1, long)
		f.whileWaiting(t, func() {
			v, source, err := f.get(t.Context(), id, d)
			if err != nil || v.Version != 1 || source != SourceAuthority {
				t.Errorf("version %d from %q, %v; want 1 from the authority", v.Version, source, err)
			}
		}, f.waiters.Drain)
	})
}

func TestTooManyWaiters(t *testing.T) {
	t.Parallel()
	f, id := setUpWith(t, 1), newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	r := require(t, id, 2, long)
	f.whileWaiting(t, func() {
		if _, _, err := f.get(t.Context(), id, r); err != nil {
			t.Errorf("the first: %v", err)
		}
	}, func() {
		_, _, err := f.get(t.Context(), id, r)
		if p := wantProblem(t, err, problem.CodeTooMany, "TOO_MANY_WAITERS"); p.RetryAfter != time.Second {
			t.Errorf("Retry-After %s", p.RetryAfter)
		}
		_, err = f.service.List(t.Context(), Query{Caller: everyone}, r)
		wantProblem(t, err, problem.CodeTooMany, "TOO_MANY_WAITERS")
		f.must(t, inbox.Applied, titled(id, 2, "second"))
	})
}
