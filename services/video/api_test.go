package video

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	videov1 "example.com/lockstep/proto/video/v1"
	"example.com/lockstep/services/video/aggregate"
)

func TestCreateAnswers(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	d := draft(nil)
	r := a.call("POST", "/v1/videos", d)
	want := []string{"consistency_token", "created_at", "description", "duration_seconds", "published_at", "title",
		"updated_at", "uploader_id", "version", "video_id"}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(r.Body))); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	for name, value := range d {
		if r.field(name) != fmt.Sprint(value) {
			t.Errorf("%s is %v, want %v", name, r.Body[name], value)
		}
	}
	id, err := uuid.Parse(r.field("video_id"))
	if err != nil || id.Version() != 7 {
		t.Errorf("video_id %s is no UUIDv7", id)
	}
	headers := map[string]string{
		"Location": "/v1/videos/" + id.String(), "ETag": `"1"`,
		"Consistency-Token": r.field("consistency_token"), "Content-Type": "application/json",
	}
	for name, value := range headers {
		if r.Header.Get(name) != value {
			t.Errorf("%s is %q, want %q", name, r.Header.Get(name), value)
		}
	}
	got := a.call("GET", r.Header.Get("Location"), nil)
	delete(r.Body, "consistency_token")
	if diff := cmp.Diff(r.Body, got.Body); diff != "" || got.Header.Get("ETag") != `"1"` {
		t.Errorf("GET finds another video, ETag %s (-created +got):\n%s", got.Header.Get("ETag"), diff)
	}
}

// A client may encode a character that needs no encoding.
func TestAnEncodedIDIsTheSame(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	encoded := strings.NewReplacer("-", "%2D")
	for _, r := range []reply{
		a.call("GET", encoded.Replace(path(v)), nil),
		a.call("PATCH", encoded.Replace(path(v)), `{"title": "x"}`),
		a.call("PUT", encoded.Replace(engaged(uuid.New(), v)), `{}`),
	} {
		if r.Status != http.StatusOK || r.field("video_id") != v.ID.String() {
			t.Errorf("%d %s", r.Status, r.Raw)
		}
	}
}

// A cached answer may be older than a write that its next reader knows of.
func TestReadsAreNotCached(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	for _, target := range []string{path(v), "/v1/videos", "/v1/videos/" + uuid.NewString()} {
		if got := a.call("GET", target, nil).Header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("GET %s: Cache-Control %q", target, got)
		}
	}
}

func TestOptionalFieldsMayBeMissing(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, body := range []string{
		`{"uploader_id": %q, "title": "t"}`,
		`{"uploader_id": %q, "title": "t", "description": null, "published_at": null}`,
	} {
		r := a.call("POST", "/v1/videos", fmt.Sprintf(body, uuid.New()))
		if r.Status != http.StatusCreated || r.Body["description"] != "" || r.field("duration_seconds") != "0" || r.Body["published_at"] != nil {
			t.Errorf("%s: %d %s", body, r.Status, r.Raw)
		}
	}
}

func TestLimitsAreInclusive(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	r := a.call("POST", "/v1/videos", draft(func(d map[string]any) {
		d["title"] = strings.Repeat("é", maxTitle)
		d["description"] = strings.Repeat("語", maxDescription-3) + "\n\t\r"
		d["duration_seconds"] = aggregate.MaxSeconds
		d["published_at"] = "9999-12-31T23:59:59.999999Z"
		d["uploader_id"] = strings.ToUpper(uuid.NewString())
	}), "Idempotency-Key", strings.Repeat("~", 255))
	if r.Status != http.StatusCreated {
		t.Fatalf("%d %s", r.Status, r.Raw)
	}
	if r := a.call("DELETE", r.Header.Get("Location"), map[string]any{"reason": strings.Repeat("é", maxReason)}); r.Status != http.StatusOK {
		t.Errorf("%d %s", r.Status, r.Raw)
	}
}

func TestTimesMayBeInLowerCase(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	r := a.call("POST", "/v1/videos", draft(func(d map[string]any) { d["published_at"] = "2020-01-01t01:30:00+01:30" }))
	if r.Status != http.StatusCreated || r.field("published_at") != "2020-01-01T00:00:00Z" {
		t.Errorf("%d %s", r.Status, r.Raw)
	}
	if r := a.call("PATCH", r.Header.Get("Location"), `{"published_at": "2020-01-01t00:00:00z"}`); r.Status != http.StatusOK || r.field("version") != "1" {
		t.Errorf("the same time in another form: %d %s", r.Status, r.Raw)
	}
}

func TestProtocolsAgree(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	published := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	created, err := a.rpc.CreateVideo(t.Context(), &videov1.CreateVideoRequest{
		UploaderId: uuid.NewString(), Title: "t", Description: "d", DurationSeconds: 7,
		PublishedAt: timestamppb.New(published.Add(999)),
	})
	if err != nil {
		t.Fatal(err)
	}
	id := created.GetVideo().GetVideoId()
	// same expects that REST, which read is from, and gRPC show one video.
	same := func(step, token string, overREST reply) {
		t.Helper()
		var v Video
		if err := json.Unmarshal(overREST.Raw, &v); err != nil {
			t.Fatal(err)
		}
		resp, err := a.rpc.GetVideo(t.Context(), &videov1.GetVideoRequest{VideoId: id})
		if err != nil {
			t.Fatal(err)
		}
		v.Epoch = 1 // REST has it in tokens only
		if diff := cmp.Diff(v.proto(), resp.GetVideo(), protocmp.Transform(),
			protocmp.IgnoreFields(resp.GetVideo(), "last_event_id", "tenant_id")); diff != "" || v.Token() != token {
			t.Errorf("%s: token %s or video differs (-REST +gRPC):\n%s", step, token, diff)
		}
	}
	first := a.call("GET", "/v1/videos/"+id, nil)
	same("create", created.GetConsistencyToken(), first)
	if first.field("published_at") != published.Format(time.RFC3339Nano) {
		t.Errorf("published_at %s, want %s", first.field("published_at"), published)
	}
	updated, err := a.rpc.UpdateVideo(t.Context(), &videov1.UpdateVideoRequest{
		Video:           &videov1.Video{VideoId: id, Title: "u", DurationSeconds: 99},
		UpdateMask:      &fieldmaskpb.FieldMask{Paths: []string{"title", "description", "published_at"}},
		ExpectedVersion: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	second := a.call("GET", "/v1/videos/"+id, nil)
	same("update", updated.GetConsistencyToken(), second)
	if second.field("description") != "" || second.Body["published_at"] != nil || second.field("duration_seconds") != "7" {
		t.Errorf("the mask did not say what changed: %s", second.Raw)
	}
	if _, err := a.rpc.UpdateVideo(t.Context(), &videov1.UpdateVideoRequest{
		Video: &videov1.Video{VideoId: id, Title: "x"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"title"}}, ExpectedVersion: 1,
	}); status.Code(err) != codes.Aborted || problem.ReasonOf(err) != "VERSION_MISMATCH" {
		t.Errorf("stale expected_version: %v", err)
	}
	deleted, err := a.rpc.DeleteVideo(t.Context(), &videov1.DeleteVideoRequest{VideoId: id, ExpectedVersion: 2})
	if err != nil || deleted.GetVersion() != 3 {
		t.Fatalf("delete: %v %v", deleted, err)
	}
	gone := a.call("GET", "/v1/videos/"+id, nil)
	_, err = a.rpc.GetVideo(t.Context(), &videov1.GetVideoRequest{VideoId: id})
	if status.Code(err) != codes.NotFound || problem.ReasonOf(err) != "VIDEO_DELETED" ||
		metadataOf(err)["version"] != "3" || metadataOf(err)["deleted_at"] != gone.field("deleted_at") {
		t.Errorf("deleted video: %v %v", err, metadataOf(err))
	}
	before := a.videoRows(id)
	tombstone := only(t, before.GetVideos())
	if tombstone.GetVersion() != 3 || !tombstone.GetDeletedAt().AsTime().Equal(deleted.GetDeletedAt().AsTime()) {
		t.Errorf("tombstone: %v", tombstone)
	}
	_, err = a.rpc.GetVideo(t.Context(), &videov1.GetVideoRequest{VideoId: uuid.NewString()})
	if status.Code(err) != codes.NotFound || problem.ReasonOf(err) != "VIDEO_NOT_FOUND" {
		t.Errorf("unknown video: %v", err)
	}
	checkLackedAsOf(t, err, before.GetAsOf(), a.videoRows(id).GetAsOf())
}

// metadataOf returns the members of an answer over gRPC that a problem document has next to the
// standard ones.
func metadataOf(err error) map[string]string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetMetadata()
		}
	}
	return nil
}

// checkLackedAsOf expects an answer that there is none to say from when it is: between
// two others.
func checkLackedAsOf(t *testing.T, err error, after, before *timestamppb.Timestamp) {
	t.Helper()
	if epoch := metadataOf(err)["epoch"]; epoch != "1" {
		t.Errorf("%v: epoch %q, want 1", err, epoch)
	}
	said := metadataOf(err)["as_of"]
	asOf, bad := time.Parse(time.RFC3339Nano, said)
	if bad != nil || asOf.Before(after.AsTime()) || asOf.After(before.AsTime()) {
		t.Errorf("%v: as of %q, want a time between %v and %v", err, said, after.AsTime(), before.AsTime())
	}
}

func TestListPages(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	uploader := uuid.NewString()
	var all, own []string // newest first
	for i := range 12 {
		d := draft(func(d map[string]any) {
			if i%3 == 0 {
				d["uploader_id"] = uploader
			}
		})
		id := a.call("POST", "/v1/videos", d).field("video_id")
		if i == 4 || i == 9 {
			a.call("DELETE", "/v1/videos/"+id, nil)
			continue
		}
		all = append([]string{id}, all...)
		if i%3 == 0 {
			own = append([]string{id}, own...)
		}
	}
	walk := func(query string) (ids []string) {
		t.Helper()
		for token, pages := "", 0; ; pages++ {
			r := a.call("GET", "/v1/videos?"+query+"&page_token="+token, nil)
			if r.Status != http.StatusOK || pages > 20 {
				t.Fatalf("%d %s", r.Status, r.Raw)
			}
			for _, v := range r.Body["videos"].([]any) {
				ids = append(ids, v.(map[string]any)["video_id"].(string))
			}
			if token = r.field("next_page_token"); token == "" {
				return ids
			}
		}
	}
	for query, want := range map[string][]string{
		"page_size=1": all, "page_size=3": all, "page_size=5": all, "page_size=10": all, "page_size=200": all,
		"page_size=2&uploader_id=" + uploader:         own,
		"page_size=2&uploader_id=" + uuid.NewString(): nil,
		"uploader_id=" + uuid.Nil.String():            nil,
	} {
		if diff := cmp.Diff(want, walk(query)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	empty := map[string]any{"next_page_token": "", "videos": []any{}}
	if r := a.call("GET", "/v1/videos?uploader_id="+uuid.NewString(), nil); !cmp.Equal(r.Body, empty) {
		t.Errorf("an empty list is %s", r.Raw)
	}

	for uploader, want := range map[string]int{"": len(all), uploader: len(own), uuid.Nil.String(): 0} {
		page, err := a.rpc.ListVideos(t.Context(), &videov1.ListVideosRequest{UploaderId: uploader})
		if err != nil || len(page.GetVideos()) != want {
			t.Errorf("list by gRPC of uploader %q: %d videos (%v), want %d", uploader, len(page.GetVideos()), err, want)
		}
	}
}

func TestPageTokenIsBoundToItsFilters(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	a.create()
	token := a.call("GET", "/v1/videos?page_size=1", nil).field("next_page_token")
	for _, query := range []string{
		"page_token=" + token + "&uploader_id=" + v.UploaderID.String(),
		"page_token=" + token[:len(token)-1], "page_token=" + token + "A", "page_token=_" + token[1:],
	} {
		if r := a.call("GET", "/v1/videos?"+query, nil); r.Status != http.StatusBadRequest || !blames(r, "page_token") {
			t.Errorf("%s: %d %s", query, r.Status, r.Raw)
		}
	}
	_, err := a.rpc.ListVideos(t.Context(), &videov1.ListVideosRequest{PageToken: token, UploaderId: v.UploaderID.String()})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("token with other filters: %v", err)
	}
	if r := a.call("GET", "/v1/videos?page_size=7&page_token="+token, nil); r.Status != http.StatusOK {
		t.Errorf("another page size: %d %s", r.Status, r.Raw)
	}
}

// Clients of gRPC take messages of 4 MiB by default.
func TestPagesOfLongVideosFitIntoAMessage(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	const n = rest.MaxPageSize + 1
	a.exec(`
		INSERT INTO video.videos (video_id, uploader_id, title, description, duration_seconds, version, created_at, updated_at)
		SELECT gen_random_uuid(), gen_random_uuid(), repeat('🎬', 500), repeat('🎬', 10000), 1, 1, now(), now() FROM generate_series(1, $1)`, n)
	read, err := selectPage(t.Context(), a.db, aggregate.Scope(everyone), Filter{}, uuid.Max, n)
	if err != nil || len(read) > 5 {
		t.Errorf("%d videos are read for a page, %v, want those that fit and one more", len(read), err)
	}
	seen := map[string]bool{}
	for token, pages := "", 0; pages == 0 || token != ""; pages++ {
		answer, err := a.rpc.ListVideos(t.Context(), &videov1.ListVideosRequest{PageSize: rest.MaxPageSize, PageToken: token})
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
