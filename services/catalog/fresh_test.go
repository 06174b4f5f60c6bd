package catalog

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/fresh"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/replica"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
)

// What a reader prefers decides what an old projection, with an owner that is away,
// has for it.
func TestModes(t *testing.T) {
	t.Parallel()
	f, id, unknown := setUp(t), newVideoID(), newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	f.peer.has(ownersVideo(id, 2, "second"))
	behind, nowhere := token(id, 2), token(unknown, 2)
	lag := []fresh.Lag{{ID: id.String(), Version: 1, AtLeast: 2}}
	type want struct {
		version int64
		source  Source
		stale   []fresh.Lag
		reason  string
	}
	for name, tc := range map[string]struct {
		ask        fresh.Request
		here, away want // with an owner that is there, and one that is away
	}{
		"no token": {
			fresh.Request{}, want{1, SourceProjection, nil, ""}, want{1, SourceProjection, nil, ""},
		},
		"minimize latency": {
			fresh.Request{Mode: consistency.MinimizeLatency, Token: behind}, want{1, SourceProjection, lag, ""}, want{1, SourceProjection, lag, ""},
		},
		"minimize latency, of what is there": {
			fresh.Request{Mode: consistency.MinimizeLatency, Token: token(id, 1)}, want{1, SourceProjection, nil, ""}, want{1, SourceProjection, nil, ""},
		},
		"at least as fresh": {
			fresh.Request{Mode: consistency.AtLeastAsFresh, Token: behind}, want{2, SourceAuthority, nil, ""}, want{reason: "NOT_FRESH_ENOUGH"},
		},
		"at least as fresh, else stale": {
			fresh.Request{Token: behind, StaleIfError: true}, want{2, SourceAuthority, nil, ""}, want{1, SourceProjection, lag, ""},
		},
		"ahead of the owner, else stale": {
			fresh.Request{Token: token(id, 3), StaleIfError: true}, want{reason: "TOKEN_AHEAD"}, want{1, SourceProjection, []fresh.Lag{{ID: id.String(), Version: 1, AtLeast: 3}}, ""},
		},
		"fully consistent": {
			fresh.Request{Mode: consistency.FullyConsistent}, want{2, SourceAuthority, nil, ""}, want{reason: "NOT_FRESH_ENOUGH"},
		},
		"fully consistent, with a token": {
			fresh.Request{Mode: consistency.FullyConsistent, Token: token(id, 3)}, want{reason: "TOKEN_AHEAD"}, want{reason: "NOT_FRESH_ENOUGH"},
		},
		"fully consistent, else stale": {
			fresh.Request{Mode: consistency.FullyConsistent, StaleIfError: true}, want{2, SourceAuthority, nil, ""}, want{1, SourceProjection, nil, ""},
		},
		"another video's token": {
			fresh.Request{Token: nowhere}, want{1, SourceProjection, nil, ""}, want{1, SourceProjection, nil, ""},
		},
	} {
		for fault, want := range map[error]want{nil: tc.here, status.Error(codes.Unavailable, "away"): tc.away} {
			f.peer.fails(fault)
			f.service = NewService(f.projector) // its circuit has seen nothing
			a, err := f.service.Get(t.Context(), id, demandOf(t, tc.ask))
			if want.reason != "" {
				wantProblem(t, err, problem.From(err).Code, want.reason)
				continue
			}
			if diff := cmp.Diff(want.stale, a.Stale); err != nil || a.Version != want.version || a.Source != want.source || diff != "" {
				t.Errorf("%s, owner %v: version %d from %q, %v; want %+v\n%s", name, fault, a.Version, a.Source, err, want, diff)
			}
		}
	}
	// Nothing is no stale answer.
	f.peer.fails(status.Error(codes.Unavailable, "away"))
	_, err := f.service.Get(t.Context(), unknown, demandOf(t, fresh.Request{Token: nowhere, StaleIfError: true}))
	wantProblem(t, err, problem.CodeUnavailable, "NOT_FRESH_ENOUGH")
	_, err = f.service.Get(t.Context(), unknown, demandOf(t, fresh.Request{Mode: consistency.FullyConsistent, StaleIfError: true}))
	wantProblem(t, err, problem.CodeUnavailable, "NOT_FRESH_ENOUGH")
	_, err = f.service.Get(t.Context(), unknown, demandOf(t, fresh.Request{Token: nowhere, Mode: consistency.MinimizeLatency}))
	if p := wantProblem(t, err, problem.CodeNotFound, "VIDEO_NOT_FOUND"); p.Extra["at_least"] != int64(2) {
		t.Errorf("nothing said about what the token demands: %v", p.Extra)
	}
	f.peer.fails(nil)
	f.service = NewService(f.projector)
	_, err = f.service.Get(t.Context(), unknown, demandOf(t, fresh.Request{Mode: consistency.FullyConsistent}))
	wantProblem(t, err, problem.CodeNotFound, "VIDEO_NOT_FOUND")
}

// A session's token names several things. A list is as fresh as all of its videos,
// a video's read as its own part.
func TestListIsAsFreshAsAllThatItsTokenNames(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	applied, behind, missing := newVideoID(), newVideoID(), newVideoID()
	f.must(t, inbox.Applied, createdEvent(applied, 1, "a"), createdEvent(behind, 1, "b"))
	engagement := consistency.Position{AggregateType: "engagement", AggregateID: "u:v", Epoch: 1, Version: 7}
	session := fresh.Request{Token: tokenOf(position(applied, 1), position(behind, 2), position(missing, 3), engagement)}
	wantTitles := func(p Page, err error, source Source, want ...string) {
		t.Helper()
		if got := titles(p); err != nil || p.Source != source || !slices.Equal(got, want) {
			t.Fatalf("%q from %q, %v; want %q from %q", got, p.Source, err, want, source)
		}
	}
	p, err := f.service.List(t.Context(), Query{}, demandOf(t, fresh.Request{Token: tokenOf(position(applied, 1), engagement)}))
	wantTitles(p, err, SourceProjection, "b", "a")
	unasked(t, f)

	f.peer.has(ownersVideo(behind, 2, "b2"))
	_, err = f.service.List(t.Context(), Query{}, demandOf(t, session))
	wantProblem(t, err, problem.CodeAhead, "TOKEN_AHEAD") // the owner lacks one of the two

	session.Mode = consistency.MinimizeLatency
	p, err = f.service.List(t.Context(), Query{}, demandOf(t, session))
	wantTitles(p, err, SourceProjection, "b2", "a")
	if diff := cmp.Diff([]fresh.Lag{{ID: missing.String(), AtLeast: 3}}, p.Stale); diff != "" {
		t.Errorf("stale (-want +got):\n%s", diff)
	}
	session.Mode = ""
	f.peer.has(ownersVideo(missing, 4, "c4"))
	p, err = f.service.List(t.Context(), Query{}, demandOf(t, session))
	wantTitles(p, err, SourceAuthority, "c4", "b2", "a")
	p, err = f.service.List(t.Context(), Query{Title: "b"}, demandOf(t, session))
	wantTitles(p, err, SourceProjection, "b2")
	p, err = f.service.List(t.Context(), Query{Title: "nowhere"}, demandOf(t, session))
	wantTitles(p, err, SourceProjection)

	session.Mode = consistency.FullyConsistent
	_, err = f.service.List(t.Context(), Query{}, demandOf(t, session))
	if problem.From(err).Code != problem.CodeInvalid {
		t.Errorf("a fully consistent list: %v", err)
	}
}

func TestListWaitsForAllThatItsTokenNames(t *testing.T) {
	t.Parallel()
	f, a, b := setUp(t), newVideoID(), newVideoID()
	d := demandOf(t, fresh.Request{Token: tokenOf(position(a, 1), position(b, 1)), Wait: long})
	f.whileWaiting(t, func() {
		p, err := f.service.List(t.Context(), Query{}, d)
		if err != nil || len(p.Videos) != 2 || p.Source != SourceProjection {
			t.Errorf("%q from %q, %v", titles(p), p.Source, err)
		}
	}, func() { f.must(t, inbox.Applied, createdEvent(a, 1, "a"), createdEvent(b, 1, "b")) })
	unasked(t, f)
}

// While a video moves on, a page and what is said about its freshness are of the
// same moment: version n is on the page exactly when position n is reached.
func TestPageAndCheckAreOneSnapshot(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	const versions = 150
	f.must(t, inbox.Applied, createdEvent(id, 1, "1"))
	var at atomic.Int64
	at.Store(1)
	var writer sync.WaitGroup
	writer.Go(func() {
		for v := int64(2); v <= versions; v++ {
			f.must(t, inbox.Applied, titled(id, v, "x"))
			at.Store(v)
		}
	})
	before, _ := (&Query{}).check()
	reads := 0
	for ; at.Load() < versions; reads++ {
		next := at.Load() + 1
		videos, reached, err := listVideos(t.Context(), f.pool, Query{PageSize: 10}, before, []consistency.Position{position(id, next)})
		if err != nil || len(videos) != 1 {
			t.Fatalf("%d videos, %v", len(videos), err)
		}
		if (videos[0].Version >= next) != (reached == 1) {
			t.Fatalf("the page has version %d, and %d positions at %d are reached", videos[0].Version, reached, next)
		}
	}
	writer.Wait()
	t.Logf("%d pages during %d changes", reads, versions)
}

// An owner that hangs is soon left alone: while one reader's question probes it, the
// others who need it are refused without a question, and those who do not need it
// notice nothing.
func TestASlowOwnerDoesNotTakeCatalogDown(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	f.peer.hangs()
	d := demand(t, id, 2, 0)
	refused := func() {
		if _, err := f.service.Get(t.Context(), id, d); problem.From(err).Reason != "NOT_FRESH_ENOUGH" {
			t.Errorf("error %v", err)
		}
	}
	var readers sync.WaitGroup
	for range 10 {
		readers.Go(refused)
	}
	readers.Wait()
	// The next question hangs until the test has seen enough, however slow the
	// machine is.
	probing, seen := make(chan struct{}), make(chan struct{})
	var questions atomic.Int64
	ask := f.projector.videos.Ask
	f.projector.videos.Ask = func(ctx context.Context, id string, timeout time.Duration) (replica.Answer[Video], error) {
		if questions.Add(1) > 1 {
			return ask(ctx, id, timeout)
		}
		close(probing)
		<-seen
		return replica.Answer[Video]{}, fresh.ErrOwnerAway
	}
	readers.Go(func() {
		for questions.Load() == 0 {
			refused()
		}
	})
	defer readers.Wait()
	defer close(seen)
	<-probing
	for range 100 {
		refused()
		v, source, err := f.get(t.Context(), id, demand(t, id, 1, long))
		wantVersion(t, v, source, err, 1, SourceProjection)
		if n := questions.Load(); n != 1 {
			t.Fatalf("an owner that hangs is asked %d times at once", n)
		}
	}
}

// Another instance applies the event, and this one answers. That it is told, and does
// not find out by a poll, is for TestAnotherInstanceIsHeard of package consistency.
func TestAnotherInstancesCommitWakes(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	other := f.beside(t)
	d := demand(t, id, 1, long)
	f.whileWaiting(t, func() {
		v, source, err := f.get(t.Context(), id, d)
		if err != nil || v.Version != 1 || source != SourceProjection {
			t.Errorf("version %d from %q, %v", v.Version, source, err)
		}
	}, func() { other.must(t, inbox.Applied, createdEvent(id, 1, "first")) })
}

// A client that hangs up frees its place.
func TestAClientThatHangsUpFreesItsWaiter(t *testing.T) {
	t.Parallel()
	f, id := setUpWith(t, 1), newVideoID()
	addr := f.listen(t)
	ctx, hangUp := context.WithCancel(t.Context())
	f.whileWaiting(t, func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/v1/videos/"+id.String(), nil)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Consistency-Token", token(id, 1))
		req.Header.Set("Prefer", "wait=10")
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			t.Errorf("answered %d", resp.StatusCode)
		}
	}, func() {
		if r := call(t, addr, "GET /v1/videos/"+id.String(), "Consistency-Token: "+token(id, 1)); r.status != http.StatusTooManyRequests {
			t.Errorf("there is one place, and the second reader is answered %d", r.status)
		}
		hangUp()
	})
	eventually(t, func() bool {
		r := call(t, addr, "GET /v1/videos/"+id.String(), "Consistency-Token: "+token(id, 1), "Prefer: wait=1")
		return r.status == http.StatusConflict // it waited, and then the owner was asked
	})
}
