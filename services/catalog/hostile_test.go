package catalog

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/internal/serve"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
)

func TestRESTHostileRequests(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	addr := f.listen(t)
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	before := f.row(t, id)
	video, list, good := "GET /v1/videos/"+id.String(), "GET /v1/videos", token(id, 1)
	pageToken := rest.PageToken(id, (&Query{}).filter())
	otherTenant := consistency.Token{Tenant: "another", Positions: []consistency.Position{position(id, 1)}}.String()
	noUUID := tokenOf(consistency.Position{AggregateType: "video", AggregateID: "42", Epoch: 1, Version: 1})
	with := func(name, value string) string { return name + ": " + value }
	tests := []struct {
		line, header string
		status       int
		field        string
	}{
		{"GET /v1/videos/42", "", 400, "video_id"},
		{"GET /v1/videos/" + strings.ReplaceAll(id.String(), "-", ""), "", 400, "video_id"},
		{"GET /v1/videos/%7B" + id.String() + "%7D", "", 400, "video_id"},
		{"GET /v1/videos/urn:uuid:" + id.String(), "", 400, "video_id"},
		{"GET /v1/videos/" + id.String()[:35] + "g", "", 400, "video_id"},
		{"GET /v1/videos/%00", "", 400, "video_id"},
		{"GET /v1/videos/" + strings.Repeat("a", 5000), "", 400, "video_id"},
		{"GET /v1/videos/" + id.String() + "/x", "", 404, ""},
		{"GET /v1/videos/", "", 404, ""},
		{"GET /v2/videos", "", 404, ""},
		{video + "?", with("Consistency-Token", good[:len(good)-1]), 400, "Consistency-Token"},
		{video + "?", with("Consistency-Token", good[:8]), 400, "Consistency-Token"},
		{video, with("Consistency-Token", ""), 400, "Consistency-Token"},
		{video, with("Consistency-Token", "garbage!"), 400, "Consistency-Token"},
		{video, with("Consistency-Token", good+"A"), 400, "Consistency-Token"},
		{video, with("Consistency-Token", strings.Repeat("A", 10_000)), 400, "Consistency-Token"},
		{video, with("Consistency-Token", otherTenant), 400, "Consistency-Token"},
		{video, with("Consistency-Token", noUUID), 400, "Consistency-Token"},
		{video + "?consistency_token=", "", 400, "consistency_token"},
		{video + "?consistency_token=" + good[:20], "", 400, "consistency_token"},
		{video + "?consistency_token=" + strings.Repeat("A", 10_000), "", 400, "consistency_token"},
		{video + "?consistency_token=" + good + "&consistency_token=" + good, "", 400, "consistency_token"},
		{video + "?consistency_token=" + good[1:], with("Consistency-Token", good), 400, "Consistency-Token"},
		{video, with("Prefer", "wait=-1"), 400, "Prefer"},
		{video, with("Prefer", "wait=1.5"), 400, "Prefer"},
		{video, with("Prefer", "wait=soon"), 400, "Prefer"},
		{video, with("Prefer", "wait"), 400, "Prefer"},
		{video, with("Prefer", "wait="), 400, "Prefer"},
		{video, with("Prefer", "wait=0x10"), 400, "Prefer"},
		{video, with("Prefer", "return=minimal, wait=+1"), 400, "Prefer"},
		{video, with("Prefer", "wait=-99999999999999999999"), 400, "Prefer"},
		{video, with("Consistency", "eventual"), 400, "Consistency"},
		{video, with("Consistency", ""), 400, "Consistency"},
		{video, with("Consistency", "at-least-as-fresh"), 400, "Consistency"},
		{video, with("Consistency", "minimize-latency, fully-consistent"), 400, "Consistency"},
		{video, with("Consistency", "minimize-latency;stale"), 400, "Consistency"},
		{video, with("Consistency", "minimize-latency;"), 400, "Consistency"},
		{list, with("Consistency", "fully-consistent"), 400, "Consistency"},
		{video + "?fresh=yes", "", 400, "fresh"},
		{video + "?page_size=2", "", 400, "page_size"},
		{video + "?%zz", "", 400, "query"},
		{list + "?a;b", "", 400, "query"},
		{list + "?page_size=0", "", 400, "page_size"},
		{list + "?page_size=-1", "", 400, "page_size"},
		{list + "?page_size=201", "", 400, "page_size"},
		{list + "?page_size=ten", "", 400, "page_size"},
		{list + "?page_size=", "", 400, "page_size"},
		{list + "?page_size=99999999999999999999", "", 400, "page_size"},
		{list + "?page_size=1&page_size=2", "", 400, "page_size"},
		{list + "?page_token=garbage", "", 400, "page_token"},
		{list + "?page_token=" + pageToken[:20], "", 400, "page_token"},
		{list + "?q=x&page_token=" + pageToken, "", 400, "page_token"},
		{list + "?page_token=" + strings.Repeat("A", 10_000), "", 400, "page_token"},
		{list + "?uploader_id=me", "", 400, "uploader_id"},
		{list + "?uploader_id=", "", 400, "uploader_id"},
		{list + "?q=%00", "", 400, "q"},
		{list + "?q=a%0Ab", "", 400, "q"},
		{list + "?q=%ff", "", 400, "q"},
		{list + "?q=%E2%80%8B", "", 400, "q"},
		{list + "?q=" + strings.Repeat("%C3%9C", 201), "", 400, "q"},
		{list + "?Q=x", "", 400, "Q"},
		{list + "?order=asc", "", 400, "order"},
		{list, with("Consistency-Token", "garbage"), 400, "Consistency-Token"},
		{list, with("Prefer", "wait=-1"), 400, "Prefer"},
		{"POST /v1/videos", "", 405, ""},
		{"PUT /v1/videos/" + id.String(), "", 405, ""},
		{"DELETE /v1/videos/" + id.String(), "", 405, ""},
		{"PATCH /v1/videos/" + id.String(), "", 405, ""},
	}
	for _, tc := range tests {
		var headers []string
		if tc.header != "" {
			headers = append(headers, tc.header)
		}
		r := call(t, addr, tc.line, headers...)
		if got := blamed(r); r.status != tc.status || got != tc.field {
			t.Errorf("%.80s %.60s: %d blaming %q; want %d blaming %q", tc.line, tc.header, r.status, got, tc.status, tc.field)
		}
	}
	if diff := cmp.Diff(before, f.row(t, id)); diff != "" || f.rows(t) != 1 {
		t.Errorf("%d rows; the one there was:\n%s", f.rows(t), diff)
	}
	unasked(t, f)
	if r := call(t, addr, video); r.status != 200 {
		t.Errorf("afterwards: %+v", r)
	}
}

// Every fault of a read is named, whichever part finds it: the query, the headers, the rules of the list.
func TestEveryFaultOfAReadIsNamed(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	addr := f.listen(t)
	conn := f.dial(t)
	for line, want := range map[string][]string{
		"GET /v1/videos?order=asc&page_size=0&uploader_id=&q=%00&page_token=x": {"order", "Prefer", "page_size", "uploader_id", "q", "page_token"},
		"GET /v1/videos?page_size=201&uploader_id=me":                          {"Prefer", "page_size", "uploader_id"},
		"GET /v1/videos/x?order=asc":                                           {"order", "Prefer", "video_id"},
	} {
		var got []string
		errs, _ := call(t, addr, line, "Prefer: wait=-1").body["errors"].([]any)
		for _, e := range errs {
			got = append(got, dig(e, "field").(string))
			if dig(e, "field") == "video_id" && dig(e, "detail") != "must be a UUID" {
				t.Errorf("the path is at fault in other words than a field: %v", e)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
	}
	err := conn.Invoke(t.Context(), catalogv1.CatalogService_ListVideos_FullMethodName, &catalogv1.ListVideosRequest{
		PageSize: -1, UploaderId: "me", AtLeastAsFresh: "x",
	}, &catalogv1.ListVideosResponse{})
	if got, want := violations(err), []string{"at_least_as_fresh", "page_size", "uploader_id"}; !slices.Equal(got, want) {
		t.Errorf("a list over gRPC: %v, want %v", got, want)
	}
	err = conn.Invoke(t.Context(), catalogv1.CatalogService_GetVideo_FullMethodName, &catalogv1.GetVideoRequest{
		VideoId: "x", Consistency: 99,
	}, &catalogv1.GetVideoResponse{})
	if got, want := violations(err), []string{"video_id", "consistency"}; !slices.Equal(got, want) {
		t.Errorf("a video over gRPC: %v, want %v", got, want)
	}
}

// The parts of the demand for freshness have faults of their own, which are named together with the others.
func TestEveryFaultOfADemandIsNamed(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	addr, conn := f.listen(t), f.dial(t)
	for _, tc := range []struct {
		line, mode string
		want       []string
	}{
		{"GET /v1/videos/x?consistency_token=x", "eventual", []string{"Prefer", "Consistency", "consistency_token", "video_id"}},
		{"GET /v1/videos/x?consistency_token=", "at-least-as-fresh", []string{"Prefer", "consistency_token", "Consistency", "video_id"}},
		{"GET /v1/videos?page_size=0", "fully-consistent", []string{"Prefer", "page_size", "Consistency"}},
	} {
		got := blamedAll(call(t, addr, tc.line, "Prefer: wait=-1", "Consistency: "+tc.mode))
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.line, diff)
		}
	}
	wait := durationpb.New(-time.Second)
	rpc := catalogv1.NewCatalogServiceClient(conn)
	_, err := rpc.GetVideo(t.Context(), &catalogv1.GetVideoRequest{VideoId: "x", AtLeastAsFresh: "x", Wait: wait, Consistency: 99})
	if got, want := violations(err), []string{"video_id", "consistency", "wait", "at_least_as_fresh"}; !slices.Equal(got, want) {
		t.Errorf("a video over gRPC: %v, want %v", got, want)
	}
	fully := catalogv1.Consistency_CONSISTENCY_FULLY_CONSISTENT
	_, err = rpc.ListVideos(t.Context(), &catalogv1.ListVideosRequest{PageSize: -1, Wait: wait, Consistency: fully})
	if got, want := violations(err), []string{"wait", "consistency", "page_size"}; !slices.Equal(got, want) {
		t.Errorf("a list over gRPC: %v, want %v", got, want)
	}
}

// blamedAll returns the fields that the errors of r name.
func blamedAll(r reply) (fields []string) {
	errs, _ := r.body["errors"].([]any)
	for _, e := range errs {
		fields = append(fields, dig(e, "field").(string))
	}
	return fields
}

func blamed(r reply) string {
	if errs, ok := r.body["errors"].([]any); ok && len(errs) == 1 {
		field, _ := dig(errs[0], "field").(string)
		return field
	}
	return ""
}

func (f *fixture) rows(t testing.TB) (n int) {
	t.Helper()
	return pgtest.Value[int](t, f.pool, `SELECT count(*) FROM video_projection`)
}

// A body has no meaning for a read, and is ignored at any length.
func TestRESTIgnoresBodies(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	router := newRouter(f.service, quiet(), serve.NewHealth(quiet()), openGuard())
	w := httptest.NewRecorder()
	router.ServeHTTP(w, httptest.NewRequest("GET", "/v1/videos", strings.NewReader(strings.Repeat("x", 3<<20))))
	if w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
