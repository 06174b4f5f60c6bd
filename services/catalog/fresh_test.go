package catalog

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/projection"
	"example.com/lockstep/pkg/eventing/txn"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
	replicationv1 "example.com/lockstep/proto/video/replication/v1"
)

// With an old projection and an unavailable owner, the reader's preference decides the
// answer.
func TestModes(t *testing.T) {
	t.Parallel()
	f, id, unknown := setUp(t), newVideoID(), newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	f.peer.has(ownersVideo(id, 2, "second"))
	behind, nowhere := token(id, 2), token(unknown, 2)
	lag := []consistency.StaleAggregate{{ID: id.String(), Version: 1, AtLeast: 2}}
	type want struct {
		version int64
		source  Source
		stale   []consistency.StaleAggregate
		reason  string
	}
	for name, tc := range map[string]struct {
		ask        consistency.Request
		here, away want // with a working owner, and with an unavailable one
	}{
		"no token": {
			consistency.Request{}, want{1, SourceProjection, nil, ""}, want{1, SourceProjection, nil, ""},
		},
		"minimize latency": {
			consistency.Request{Mode: consistency.MinimizeLatency, Token: behind}, want{1, SourceProjection, lag, ""}, want{1, SourceProjection, lag, ""},
		},
		"minimize latency, of what is there": {
			consistency.Request{Mode: consistency.MinimizeLatency, Token: token(id, 1)}, want{1, SourceProjection, nil, ""}, want{1, SourceProjection, nil, ""},
		},
		"at least as fresh": {
			consistency.Request{Mode: consistency.AtLeastAsFresh, Token: behind}, want{2, SourceAuthority, nil, ""}, want{reason: "NOT_FRESH_ENOUGH"},
		},
		"at least as fresh, else stale": {
			consistency.Request{Token: behind, StaleIfError: true}, want{2, SourceAuthority, nil, ""}, want{1, SourceProjection, lag, ""},
		},
		"ahead of the owner, else stale": {
			consistency.Request{Token: token(id, 3), StaleIfError: true}, want{reason: "TOKEN_AHEAD"}, want{1, SourceProjection, []consistency.StaleAggregate{{ID: id.String(), Version: 1, AtLeast: 3}}, ""},
		},
		"fully consistent": {
			consistency.Request{Mode: consistency.FullyConsistent}, want{2, SourceAuthority, nil, ""}, want{reason: "NOT_FRESH_ENOUGH"},
		},
		"fully consistent, with a token": {
			consistency.Request{Mode: consistency.FullyConsistent, Token: token(id, 3)}, want{reason: "TOKEN_AHEAD"}, want{reason: "NOT_FRESH_ENOUGH"},
		},
		"fully consistent, else stale": {
			consistency.Request{Mode: consistency.FullyConsistent, StaleIfError: true}, want{2, SourceAuthority, nil, ""}, want{1, SourceProjection, nil, ""},
		},
		"another video's token": {
			consistency.Request{Token: nowhere}, want{1, SourceProjection, nil, ""}, want{1, SourceProjection, nil, ""},
		},
	} {
		for fault, want := range map[error]want{nil: tc.here, status.Error(codes.Unavailable, "away"): tc.away} {
			f.peer.fails(fault)
			f.service = NewService(f.pool, f.projector) // its circuit has seen nothing
			a, err := f.service.Get(t.Context(), everyone, id, requirementOn(t, tc.ask))
			if want.reason != "" {
				wantProblem(t, err, problem.From(err).Code, want.reason)
				continue
			}
			if diff := cmp.Diff(want.stale, a.Stale); err != nil || a.Version != want.version || a.Source != want.source || diff != "" {
				t.Errorf("%s, owner %v: version %d from %q, %v; want %+v\n%s", name, fault, a.Version, a.Source, err, want, diff)
			}
		}
	}
	// The absence of a row is no stale answer.
	f.peer.fails(status.Error(codes.Unavailable, "away"))
	_, err := f.service.Get(t.Context(), everyone, unknown, requirementOn(t, consistency.Request{Token: nowhere, StaleIfError: true}))
	wantProblem(t, err, problem.CodeUnavailable, "NOT_FRESH_ENOUGH")
	_, err = f.service.Get(t.Context(), everyone, unknown, requirementOn(t, consistency.Request{Mode: consistency.FullyConsistent, StaleIfError: true}))
	wantProblem(t, err, problem.CodeUnavailable, "NOT_FRESH_ENOUGH")
	_, err = f.service.Get(t.Context(), everyone, unknown, requirementOn(t, consistency.Request{Token: nowhere, Mode: consistency.MinimizeLatency}))
	if p := wantProblem(t, err, problem.CodeNotFound, "VIDEO_NOT_FOUND"); p.Extra["at_least"] != int64(2) {
		t.Errorf("nothing said about what the token demands: %v", p.Extra)
	}
	f.peer.fails(nil)
	f.service = NewService(f.pool, f.projector)
	_, err = f.service.Get(t.Context(), everyone, unknown, requirementOn(t, consistency.Request{Mode: consistency.FullyConsistent}))
	wantProblem(t, err, problem.CodeNotFound, "VIDEO_NOT_FOUND")
}

// A session's token names several aggregates. A list is as fresh as all videos in the
// token, a video's read only as fresh as the token's position of the same video.
func TestListIsAsFreshAsAllThatItsTokenNames(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	applied, behind, missing := newVideoID(), newVideoID(), newVideoID()
	f.must(t, inbox.Applied, createdEvent(applied, 1, "a"), createdEvent(behind, 1, "b"))
	foreign := consistency.Position{AggregateType: "another", AggregateID: "u:v", Epoch: 1, Version: 7}
	session := consistency.Request{Token: tokenOf(position(applied, 1), position(behind, 2)) + ", " + tokenOf(position(missing, 3), foreign)}
	wantTitles := func(p Page, err error, source Source, want ...string) {
		t.Helper()
		if got := titles(p); err != nil || p.Source != source || !slices.Equal(got, want) {
			t.Fatalf("%q from %q, %v; want %q from %q", got, p.Source, err, want, source)
		}
	}
	p, err := f.service.List(t.Context(), Query{Caller: everyone}, requirementOn(t, consistency.Request{Token: tokenOf(position(applied, 1), foreign)}))
	wantTitles(p, err, SourceProjection, "b", "a")
	unasked(t, f)

	f.peer.has(ownersVideo(behind, 2, "b2"))
	_, err = f.service.List(t.Context(), Query{Caller: everyone}, requirementOn(t, session))
	wantProblem(t, err, problem.CodeAhead, "TOKEN_AHEAD") // the owner lacks one of the two: neither is written

	session.Mode = consistency.MinimizeLatency
	p, err = f.service.List(t.Context(), Query{Caller: everyone}, requirementOn(t, session))
	wantTitles(p, err, SourceProjection, "b", "a")
	if diff := cmp.Diff([]consistency.StaleAggregate{{ID: behind.String(), Version: 1, AtLeast: 2}, {ID: missing.String(), AtLeast: 3}}, p.Stale); diff != "" {
		t.Errorf("stale (-want +got):\n%s", diff)
	}
	session.Mode = ""
	f.peer.has(ownersVideo(missing, 4, "c4"))
	p, err = f.service.List(t.Context(), Query{Caller: everyone}, requirementOn(t, session))
	wantTitles(p, err, SourceAuthority, "c4", "b2", "a")
	p, err = f.service.List(t.Context(), Query{Caller: everyone, Title: "b"}, requirementOn(t, session))
	wantTitles(p, err, SourceProjection, "b2")
	p, err = f.service.List(t.Context(), Query{Caller: everyone, Title: "nowhere"}, requirementOn(t, session))
	wantTitles(p, err, SourceProjection)

	session.Mode = consistency.FullyConsistent
	_, err = f.service.List(t.Context(), Query{Caller: everyone}, requirementOn(t, session))
	if problem.From(err).Code != problem.CodeInvalid {
		t.Errorf("a fully consistent list: %v", err)
	}
}

func TestListWaitsForAllThatItsTokenNames(t *testing.T) {
	t.Parallel()
	f, a, b := setUp(t), newVideoID(), newVideoID()
	d := requirementOn(t, consistency.Request{Token: tokenOf(position(a, 1), position(b, 1)), Wait: long})
	f.whileWaiting(t, func() {
		p, err := f.service.List(t.Context(), Query{Caller: everyone}, d)
		if err != nil || len(p.Videos) != 2 || p.Source != SourceProjection {
			t.Errorf("%q from %q, %v", titles(p), p.Source, err)
		}
	}, func() { f.must(t, inbox.Applied, createdEvent(a, 1, "a"), createdEvent(b, 1, "b")) })
	unasked(t, f)
}

// While a video moves on, a page and its freshness check are of the same moment:
// version n is on the page exactly when position n is reached.
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
		videos, reached, err := listVideos(t.Context(), f.pool, Query{Caller: everyone, PageSize: 10}, before, []consistency.Position{position(id, next)})
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

// After some failures an owner that hangs is no longer asked: while one reader's call
// probes it, other readers that need the owner are refused without a call, and readers
// that do not need it are not affected.
func TestASlowOwnerDoesNotTakeCatalogDown(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	f.peer.hangs()
	d := require(t, id, 2, 0)
	refused := func() {
		if _, err := f.service.Get(t.Context(), everyone, id, d); problem.From(err).Reason != "NOT_FRESH_ENOUGH" {
			t.Errorf("error %v", err)
		}
	}
	var readers sync.WaitGroup
	for range 10 {
		readers.Go(refused)
	}
	readers.Wait()
	// The next call hangs until the test has checked enough, however slow the machine
	// is.
	probing, seen := make(chan struct{}), make(chan struct{})
	slow := &slowOwner{videos: videos{db: f.pool, owner: replicationv1.NewReplicationServiceClient(f.owner)}, probing: probing, seen: seen}
	f.projector.videos = projection.New(txn.NewWriter(f.pool), slow, f.waiters, quiet())
	readers.Go(func() {
		for slow.questions.Load() == 0 {
			refused()
		}
	})
	defer readers.Wait()
	defer close(seen)
	<-probing
	for range 100 {
		refused()
		v, source, err := f.get(t.Context(), id, require(t, id, 1, long))
		wantVersion(t, v, source, err, 1, SourceProjection)
		if n := slow.questions.Load(); n != 1 {
			t.Fatalf("an owner that hangs is asked %d times at once", n)
		}
	}
}

// Another instance applies the event, and this one answers. TestAnotherInstanceNotifies
// of package consistency shows that a notification and not a poll wakes it.
func TestAnotherInstancesCommitWakes(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	other := f.otherInstance(t)
	d := require(t, id, 1, long)
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

// A forged token costs the owner one call, however many aggregates it names, over
// either protocol. A call about many counts as one in the circuit.
func TestAForgedTokenCostsTheOwnerOneRead(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	addr := f.listen(t)
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client := catalogv1.NewCatalogServiceClient(conn)
	var videos []consistency.Position
	for range consistency.MaxPositions {
		videos = append(videos, position(newVideoID(), 7))
	}
	id := videos[0].AggregateID
	rest := func(path, token string) func() bool {
		return func() bool {
			r := call(t, addr, "GET "+path, "Consistency-Token: "+token, "Prefer: wait=0")
			return r.status == http.StatusConflict
		}
	}
	ahead := func(err error) bool { return problem.ReasonOf(err) == "TOKEN_AHEAD" }
	now := durationpb.New(0)
	reads := map[string]func() bool{
		"a video over REST":  rest("/v1/videos/"+id, tokenOf(videos...)),
		"a list over REST":   rest("/v1/videos", tokenOf(videos...)),
		"a search over REST": rest("/v1/videos?q=x", tokenOf(videos...)),
		"a video over gRPC": func() bool {
			_, err := client.GetVideo(t.Context(), &catalogv1.GetVideoRequest{VideoId: id, AtLeastAsFresh: tokenOf(videos...), Wait: now})
			return ahead(err)
		},
		"a list over gRPC": func() bool {
			_, err := client.ListVideos(t.Context(), &catalogv1.ListVideosRequest{AtLeastAsFresh: tokenOf(videos...), Wait: now})
			return ahead(err)
		},
	}
	addForgedEngagements(t, reads, client, rest)
	for name, forged := range reads {
		if !forged() {
			t.Errorf("%s: not answered that it is ahead", name)
		}
		if n := len(f.peer.asked); n != 1 {
			t.Errorf("%s: the owner was asked %d times", name, n)
		}
		for len(f.peer.asked) > 0 {
			<-f.peer.asked
		}
	}
}

// A page with nothing on it is an empty list in JSON, with a token and without.
func TestAnEmptyPageIsAList(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	addr := f.listen(t)
	for _, path := range []string{"/v1/videos?q=nowhere", "/v1/videos?q=nowhere&consistency_token=" + token(id, 1)} {
		r := call(t, addr, "GET "+path)
		if videos, ok := r.body["videos"].([]any); r.status != http.StatusOK || !ok || len(videos) > 0 {
			t.Errorf("%s: %d %v", path, r.status, r.body)
		}
	}
}
