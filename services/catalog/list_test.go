package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
)

func titles(p Page) (titles []string) {
	for _, v := range p.Videos {
		titles = append(titles, v.Title)
	}
	return titles
}

func TestListFilters(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	var gone uuid.UUID
	for i, title := range []string{"50% off", "500 miles", "snake_case", "snakeXcase", `back\slash`, "ÜBUNG", "deleted 50%"} {
		id := newVideoID()
		f.must(t, inbox.Applied, createdEvent(id, 1, title))
		if i == 6 {
			gone = id
		}
	}
	f.must(t, inbox.Applied, deletedEvent(gone, 2), deletedEvent(newVideoID(), 2))
	for _, tc := range []struct {
		q    Query
		want []string
	}{
		{Query{Caller: everyone}, []string{"ÜBUNG", `back\slash`, "snakeXcase", "snake_case", "500 miles", "50% off"}},
		{Query{Caller: everyone, Title: "50%"}, []string{"50% off"}},
		{Query{Caller: everyone, Title: "E_c"}, []string{"snake_case"}},
		{Query{Caller: everyone, Title: `K\S`}, []string{`back\slash`}},
		{Query{Caller: everyone, Title: "SNAKE"}, []string{"snakeXcase", "snake_case"}},
		{Query{Caller: everyone, Title: "nowhere"}, nil},
		{Query{Caller: everyone, UploaderID: uploader.String(), Title: "miles"}, []string{"500 miles"}},
		{Query{Caller: everyone, UploaderID: uuid.Nil.String(), Title: "miles"}, nil},
	} {
		page, err := f.service.List(t.Context(), tc.q, consistency.Requirement{})
		if got := titles(page); err != nil || !slices.Equal(got, tc.want) || page.Source != SourceProjection {
			t.Errorf("%+v: %q from %q, %v; want %q", tc.q, got, page.Source, err, tc.want)
		}
	}
}

func TestListPages(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	var want []string
	for i := range 7 {
		title := fmt.Sprint("video ", i)
		f.must(t, inbox.Applied, createdEvent(newVideoID(), 1, title))
		want = append([]string{title}, want...)
	}
	for _, filter := range []Query{{Caller: everyone}, {Caller: everyone, Title: "video"}, {Caller: everyone, UploaderID: uploader.String()}} {
		for _, size := range []int{1, 3, 6, 7, 8} {
			var got []string
			q := filter
			for q.PageSize = size; ; {
				page, err := f.service.List(t.Context(), q, consistency.Requirement{})
				if err != nil || len(page.Videos) > size || len(page.Videos) == 0 {
					t.Fatalf("page of %d: %d videos, %v", size, len(page.Videos), err)
				}
				got = append(got, titles(page)...)
				if q.PageToken = page.Next; page.Next == "" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("pages of %d with %+v: %q", size, filter, got)
			}
		}
	}
}

func TestPageTokenIsBoundToItsList(t *testing.T) {
	t.Parallel()
	q := Query{Caller: everyone, UploaderID: uploader.String(), Title: "x", PageSize: 10}
	token := rest.PageToken(newVideoID(), q.filter())
	other := newVideoID()
	for name, q := range map[string]Query{
		"another page size":            {Caller: everyone, UploaderID: uploader.String(), Title: "x", PageSize: 20, PageToken: token},
		"the uploader in another case": {Caller: everyone, UploaderID: strings.ToUpper(uploader.String()), Title: "x", PageToken: token},
	} {
		if _, err := q.check(); err != nil || q.filter() != everyone.Scope()+uploader.String()+" x" {
			t.Errorf("%s: %v, bound to %q", name, err, q.filter())
		}
	}
	for name, q := range map[string]Query{
		"another title":    {Caller: everyone, UploaderID: uploader.String(), Title: "y", PageToken: token},
		"another uploader": {Caller: everyone, UploaderID: other.String(), Title: "x", PageToken: token},
		"no uploader":      {Caller: everyone, Title: "x", PageToken: token},
		"cut off":          {UploaderID: uploader.String(), Title: "x", PageToken: token[:len(token)-1]},
		"cut to the id":    {UploaderID: uploader.String(), Title: "x", PageToken: token[:22]},
		"longer":           {UploaderID: uploader.String(), Title: "x", PageToken: token + "AAAA"},
		"garbage":          {UploaderID: uploader.String(), Title: "x", PageToken: "%%%"},
	} {
		_, err := q.check()
		p, ok := errors.AsType[*problem.Error](err)
		if !ok || len(p.Fields) != 1 || p.Fields[0].Field != "page_token" {
			t.Errorf("%s: %v; want page_token blamed", name, err)
		}
	}
}

func TestListWithToken(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	list := func(id uuid.UUID, version int64, wait time.Duration) (Page, error) {
		return f.service.List(t.Context(), Query{Caller: everyone}, require(t, id, version, wait))
	}
	wantPage := func(p Page, err error, source Source, want ...string) {
		t.Helper()
		if err != nil || p.Source != source || !slices.Equal(titles(p), want) {
			t.Fatalf("%q from %q, %v; want %q from %q", titles(p), p.Source, err, want, source)
		}
	}
	page, err := list(id, 1, long)
	wantPage(page, err, SourceProjection, "first")
	unasked(t, f)

	_, err = list(id, 2, 0)
	wantProblem(t, err, problem.CodeAhead, "TOKEN_AHEAD") // the owner does not know the video
	f.peer.has(ownersVideo(id, 3, "third"))
	page, err = list(id, 3, 0)
	wantPage(page, err, SourceAuthority, "third")
	if v := f.row(t, id); v.Version != 3 {
		t.Errorf("the row has version %d; want it repaired", v.Version)
	}
	page, err = list(id, 3, 0)
	wantPage(page, err, SourceProjection, "third")
	_, err = list(id, 4, 0)
	wantProblem(t, err, problem.CodeAhead, "TOKEN_AHEAD")

	f.peer.has(ownersTombstone(id, 5))
	page, err = list(id, 5, 0)
	wantPage(page, err, SourceAuthority)

	f.peer.fails(status.Error(codes.Unavailable, "away"))
	_, err = list(newVideoID(), 1, 0)
	wantProblem(t, err, problem.CodeUnavailable, "NOT_FRESH_ENOUGH")
}

// The read model's table refuses the row that the token names, as with a constraint of a fork. A single read has the owner's
// answer. No list can show the row, so lists of both protocols refuse, or say what their pages lack.
func TestListsWithATokenOfARefusedRow(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	f.refuse(t)
	f.peer.has(ownersVideo(id, 2, "refused"))
	conn := f.dial(t)
	client, addr := catalogv1.NewCatalogServiceClient(conn), conn.Target()
	if v, source, err := f.get(t.Context(), id, require(t, id, 2, 0)); err != nil || source != SourceAuthority || v.Title != "refused" {
		t.Fatalf("a single read: %+v from %s, %v", v, source, err)
	}
	r := call(t, addr, "GET /v1/videos", "Consistency-Token: "+token(id, 2), "Prefer: wait=0")
	if r.status != 503 || r.body["reason"] != "NOT_FRESH_ENOUGH" || r.header.Get("Retry-After") != "30" {
		t.Errorf("a list: %+v", r)
	}
	_, err := client.ListVideos(t.Context(), &catalogv1.ListVideosRequest{AtLeastAsFresh: token(id, 2), Wait: durationpb.New(0)})
	if status.Code(err) != codes.Unavailable || problem.ReasonOf(err) != "NOT_FRESH_ENOUGH" || retryDelay(err) != 30*time.Second {
		t.Errorf("a list over gRPC: %v", err)
	}
	required := requirementOn(t, consistency.Request{Token: token(id, 2), StaleIfError: true})
	page, err := f.service.List(t.Context(), Query{Caller: everyone}, required)
	if err != nil || !slices.Equal(titles(page), []string{"first"}) || len(page.Stale) != 1 || page.Stale[0].AtLeast != 2 {
		t.Errorf("a list that may be stale: %+v, %v", page, err)
	}
}

// The repair of a list is a commit like any other: it ends the waits for its rows.
func TestRepairEndsTheWaitOfOthers(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	r, now := require(t, id, 3, long), require(t, id, 3, 0)
	f.whileWaiting(t, func() {
		if _, source, err := f.get(t.Context(), id, r); err != nil || source != SourceProjection {
			t.Errorf("from %q, %v; want the repaired projection", source, err)
		}
	}, func() {
		f.peer.has(ownersVideo(id, 3, "third"))
		if _, err := f.service.List(t.Context(), Query{Caller: everyone}, now); err != nil {
			t.Error(err)
		}
	})
}

// Clients of gRPC take messages of 4 MiB by default.
func TestPagesOfLongVideosFitIntoAMessage(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	client := catalogv1.NewCatalogServiceClient(f.dial(t))
	const n = rest.MaxPageSize + 1
	pgtest.Exec(t, f.pool, `
		INSERT INTO video_projection (video_id, uploader_id, title, description, duration_seconds, version, epoch, created_at, updated_at)
		SELECT gen_random_uuid(), gen_random_uuid(), repeat('🎬', 500), repeat('🎬', 10000), 1, 1, 1, now(), now() FROM generate_series(1, $1)`, n)
	for _, wanted := range [][]consistency.Position{nil, {position(newVideoID(), 1)}} {
		read, _, err := listVideos(t.Context(), f.pool, Query{Caller: everyone, PageSize: rest.MaxPageSize}, uuid.Max, wanted)
		if err != nil || len(read) > 5 {
			t.Errorf("%d videos are read for a page, %v, want those that fit and one more", len(read), err)
		}
	}
	seen := map[string]bool{}
	for token, pages := "", 0; pages == 0 || token != ""; pages++ {
		answer, err := client.ListVideos(t.Context(), &catalogv1.ListVideosRequest{PageSize: rest.MaxPageSize, PageToken: token})
		if err != nil || len(answer.GetVideos()) == 0 {
			t.Fatalf("page %d: %d videos, %v", pages, len(answer.GetVideos()), err)
		}
		for _, v := range answer.GetVideos() {
			seen[v.GetVideoId()] = true
		}
		token = answer.GetNextPageToken()
	}
	if len(seen) != n {
		t.Errorf("%d videos on all pages, want %d", len(seen), n)
	}
}
