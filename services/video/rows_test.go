package video

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	videov1 "example.com/lockstep/proto/video/v1"
)

// listed are the ids of all videos, and how many each page has.
func (a *api) listed() (ids []string, pages []int) {
	a.Helper()
	owner := videov1.NewReconcileServiceClient(a.conn)
	for from := ""; ; {
		page, err := owner.ListVideoRows(a.Context(), &videov1.ListVideoRowsRequest{From: from})
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
	owner := videov1.NewReconcileServiceClient(a.conn)
	page, err := owner.ListVideoRows(t.Context(), &videov1.ListVideoRowsRequest{})
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

// A row in the list is that of GetVideo or GetEngagement, also a tombstone.
func TestRowsAreWhole(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := videov1.NewReconcileServiceClient(a.conn)
	kept, deleted := a.create(), a.create()
	user := uuid.NewString()
	for _, v := range []Video{kept, deleted} {
		if _, err := a.engage.PutEngagement(t.Context(), &videov1.PutEngagementRequest{UserId: user, VideoId: v.ID.String(), Liked: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.engage.DeleteEngagement(t.Context(), &videov1.DeleteEngagementRequest{UserId: user, VideoId: deleted.ID.String()}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.rpc.DeleteVideo(t.Context(), &videov1.DeleteVideoRequest{VideoId: deleted.ID.String()}); err != nil {
		t.Fatal(err)
	}
	videos, err := owner.ListVideoRows(t.Context(), &videov1.ListVideoRowsRequest{From: uuid.Nil.String()})
	if err != nil {
		t.Fatal(err)
	}
	engagements, err := owner.ListEngagementRows(t.Context(), &videov1.ListEngagementRowsRequest{From: user + ":" + uuid.Nil.String()})
	if err != nil || len(videos.GetVideos()) != 2 || len(engagements.GetEngagements()) != 2 || engagements.GetNext() != "" || engagements.GetAsOf() == nil {
		t.Fatalf("%v, %v, %v", videos, engagements, err)
	}
	for _, row := range videos.GetVideos() {
		one, err := a.rpc.GetVideo(t.Context(), &videov1.GetVideoRequest{VideoId: row.GetVideoId(), IncludeDeleted: true})
		if err != nil || !proto.Equal(row, one.GetVideo()) || row.GetLastEventId() == "" || row.GetEpoch() != 1 {
			t.Errorf("listed %v, got %v, %v", row, one, err)
		}
	}
	for _, row := range engagements.GetEngagements() {
		one, err := a.engage.GetEngagement(t.Context(), &videov1.GetEngagementRequest{UserId: user, VideoId: row.GetVideoId(), IncludeDeleted: true})
		if err != nil || !proto.Equal(row, one.GetEngagement()) || row.GetLastEventId() == "" || row.GetEpoch() != 1 {
			t.Errorf("listed %v, got %v, %v", row, one, err)
		}
	}
}

// A list begins at an id of its table only.
func TestRowsFromNoID(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := videov1.NewReconcileServiceClient(a.conn)
	nothing := uuid.Nil.String()
	for _, from := range []string{"x", nothing + ":" + nothing, strings.ToUpper(uuid.Max.String())} {
		_, err := owner.ListVideoRows(t.Context(), &videov1.ListVideoRowsRequest{From: from})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "from") {
			t.Errorf("%q: %v", from, err)
		}
	}
	_, err := owner.ListEngagementRows(t.Context(), &videov1.ListEngagementRowsRequest{From: nothing})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "from") {
		t.Error(err)
	}
}
