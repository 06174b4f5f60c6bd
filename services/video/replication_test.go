package video

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	replicationv1 "example.com/lockstep/proto/video/replication/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

// listed are the ids of all videos, and how many each page has.
func (a *api) listed() (ids []string, pages []int) {
	a.Helper()
	for from := ""; ; {
		page, err := a.replica.ListVideoRows(a.Context(), &replicationv1.ListVideoRowsRequest{From: from})
		if err != nil {
			a.Fatal(err)
		}
		if page.GetAsOf() == nil || page.GetEstimatedRows() != 1200 {
			a.Errorf("as of %v, about %d rows", page.GetAsOf(), page.GetEstimatedRows())
		}
		for _, v := range page.GetVideos() {
			ids = append(ids, v.GetVideoId())
		}
		pages = append(pages, len(page.GetVideos()))
		if from = page.GetNext(); from == "" {
			return ids, pages
		}
	}
}

// The owner lists each row once, in the order of ids, in pages that are bounded by their
// rows and by their bytes.
func TestRowsArePaged(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	page, err := a.replica.ListVideoRows(t.Context(), &replicationv1.ListVideoRowsRequest{})
	if err != nil || len(page.GetVideos()) > 0 || page.GetNext() != "" || page.GetAsOf() == nil {
		t.Errorf("an empty table: %v, %v", page, err)
	}
	a.exec(`INSERT INTO video.videos (video_id, uploader_id, title, description, version, created_at, updated_at)
		SELECT gen_random_uuid(), gen_random_uuid(), 'title', '', 1, now(), now() FROM generate_series(1, 1200)`)
	a.exec(`ANALYZE video.videos`)
	ids, pages := a.listed()
	if !slices.Equal(pages, []int{500, 500, 200}) || !slices.IsSorted(ids) || len(slices.Compact(ids)) != 1200 {
		t.Errorf("pages of %v, %d rows", pages, len(ids))
	}
	a.exec(`UPDATE video.videos SET description = repeat('y', 10000)`)
	ids, pages = a.listed()
	if slices.Max(pages) > 1<<20/10_000 || slices.Min(pages[:len(pages)-1]) < 100 || len(slices.Compact(ids)) != 1200 {
		t.Errorf("pages of %v, %d rows", pages, len(ids))
	}
}

// A row in the list is that of GetVideoRows, also a tombstone.
func TestRowsAreWhole(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	_, deleted := a.create(), a.create()
	if _, err := a.rpc.DeleteVideo(t.Context(), &videov1.DeleteVideoRequest{VideoId: deleted.ID.String()}); err != nil {
		t.Fatal(err)
	}
	videos, err := a.replica.ListVideoRows(t.Context(), &replicationv1.ListVideoRowsRequest{From: uuid.Nil.String()})
	if err != nil || len(videos.GetVideos()) != 2 {
		t.Fatalf("%v, %v", videos, err)
	}
	for _, row := range videos.GetVideos() {
		one := a.videoRows(row.GetVideoId())
		if !proto.Equal(row, only(t, one.GetVideos())) || row.GetLastEventId() == "" || row.GetEpoch() != 1 {
			t.Errorf("listed %v, got %v", row, one)
		}
	}
}

// A list begins at an id of its table only.
func TestRowsFromNoID(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	nothing := uuid.Nil.String()
	for _, from := range []string{"x", nothing + ":" + nothing, strings.ToUpper(uuid.Max.String())} {
		_, err := a.replica.ListVideoRows(t.Context(), &replicationv1.ListVideoRowsRequest{From: from})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "from") {
			t.Errorf("%q: %v", from, err)
		}
	}
}

// A consumer reads many in one call: tombstones are among them, and a video that never
// existed is left out.
func TestReadsOfMany(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	here, gone := a.create(), a.create()
	a.call("DELETE", path(gone), nil)
	ids := []string{uuid.NewString(), here.ID.String(), gone.ID.String(), here.ID.String()}
	videos := a.videoRows(ids...)
	for _, v := range videos.GetVideos() {
		if deleted := v.GetVideoId() == gone.ID.String(); deleted != (v.DeletedAt != nil) || v.GetEpoch() == 0 || v.GetVersion() == 0 {
			t.Errorf("%v", v)
		}
	}
	if len(videos.GetVideos()) != 2 {
		t.Errorf("%d videos, want 2", len(videos.GetVideos()))
	}
	for name, ids := range map[string][]string{"none": nil, "no id": {"x"}, "too many": slices.Repeat(ids[:1], 33)} {
		if _, err := a.replica.GetVideoRows(t.Context(), &replicationv1.GetVideoRowsRequest{VideoIds: ids}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if none := a.videoRows(slices.Repeat(ids[:1], 32)...); len(none.GetVideos()) > 0 || none.GetEpoch() != 1 || none.GetAsOf() == nil {
		t.Errorf("of none: %v; want the state of the database", none)
	}
}

// Rows with times that Go or JSON cannot express keep no other row from the reader, in a list
// and by their ids.
func TestRowsWithOddTimes(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.exec(`INSERT INTO video.videos (video_id, uploader_id, title, description, version, published_at, created_at, updated_at)
		SELECT lpad(to_hex(n), 32, '0')::uuid, gen_random_uuid(), 'title', '', 1, CASE n WHEN 2 THEN timestamptz 'infinity' WHEN 3 THEN '20260-11-22' END,
		       '2026-11-22 12:00+00', CASE n WHEN 1 THEN '-infinity' ELSE timestamptz '2026-11-22 12:00:00.000001+00' END FROM generate_series(1, 3) AS n`)
	videos, err := a.replica.ListVideoRows(t.Context(), &replicationv1.ListVideoRowsRequest{})
	if err != nil || len(videos.GetVideos()) != 3 {
		t.Fatalf("%v, %v", videos, err)
	}
	stamps := func(t *timestamppb.Timestamp) string {
		if t == nil {
			return "none"
		}
		return t.AsTime().Format(time.RFC3339Nano)
	}
	for i, want := range [][2]string{
		{"none", "0001-01-02T00:00:00Z"}, {"9999-12-31T00:00:00Z", "2026-11-22T12:00:00.000001Z"}, {"9999-12-31T00:00:00Z", "2026-11-22T12:00:00.000001Z"},
	} {
		v := videos.GetVideos()[i]
		got := [2]string{stamps(v.GetPublishedAt()), stamps(v.GetUpdatedAt())}
		if got != want || stamps(v.GetCreatedAt()) != "2026-11-22T12:00:00Z" {
			t.Errorf("row %d: %v, want %v: %v", i, got, want, v)
		}
	}
	byID := map[string]*videov1.Video{}
	for _, v := range videos.GetVideos() {
		byID[v.GetVideoId()] = v
	}
	named := a.videoRows(slices.Collect(maps.Keys(byID))...).GetVideos()
	for _, v := range named {
		if want := byID[v.GetVideoId()]; !proto.Equal(v, want) {
			t.Errorf("by its id: %v, want %v", v, want)
		}
	}
	if len(named) != 3 {
		t.Errorf("%d of 3 videos by their ids", len(named))
	}
}
