package catalog

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
)

func (f *fixture) dial(t testing.TB) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(f.listen(t), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestGRPCReadsAVideo(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	client := catalogv1.NewCatalogServiceClient(f.dial(t))
	get := func(version int64) (*catalogv1.GetVideoResponse, error) {
		req := &catalogv1.GetVideoRequest{VideoId: id.String(), Wait: durationpb.New(0)}
		if version > 0 {
			req.AtLeastAsFresh = token(id, version)
		}
		return client.GetVideo(t.Context(), req)
	}
	wantStatus := func(err error, code codes.Code, reason string) {
		t.Helper()
		if status.Code(err) != code || problem.ReasonOf(err) != reason {
			t.Fatalf("%v (reason %q); want %s, %s", err, problem.ReasonOf(err), code, reason)
		}
	}
	_, err := get(0)
	wantStatus(err, codes.NotFound, "VIDEO_NOT_FOUND")
	_, err = get(1)
	wantStatus(err, codes.FailedPrecondition, "TOKEN_AHEAD")

	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	want := &catalogv1.GetVideoResponse{
		Source: catalogv1.Source_SOURCE_PROJECTION,
		Video: &catalogv1.Video{
			VideoId: id.String(), UploaderId: uploader.String(), Title: "first", Description: "about it",
			DurationSeconds: 60, PublishedAt: pb(-1), Version: 1, CreatedAt: pb(1), UpdatedAt: pb(1),
		},
	}
	for version := range int64(2) {
		got, err := get(version)
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	f.peer.has(ownersVideo(id, 2, "second"))
	got, err := get(2)
	if err != nil || got.GetSource() != catalogv1.Source_SOURCE_AUTHORITY || got.GetVideo().GetTitle() != "second" {
		t.Errorf("%v, %v; want the owner's second version", got, err)
	}
	f.peer.fails(status.Error(codes.Unavailable, "away"))
	_, err = get(2)
	wantStatus(err, codes.Unavailable, "NOT_FRESH_ENOUGH")
	f.must(t, inbox.Applied, deletedEvent(id, 3))
	_, err = get(3)
	wantStatus(err, codes.NotFound, "VIDEO_DELETED")
	meta := map[string]string{"version": "3", "deleted_at": at(3).Format(time.RFC3339Nano), "source": "projection"}
	info := status.Convert(err).Details()[0].(*errdetails.ErrorInfo)
	if diff := cmp.Diff(meta, info.GetMetadata()); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
}

func TestGRPCLists(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	client := catalogv1.NewCatalogServiceClient(f.dial(t))
	for range 3 {
		f.must(t, inbox.Applied, createdEvent(newVideoID(), 1, "a b"))
	}
	req := &catalogv1.ListVideosRequest{PageSize: 2, Q: "A B", UploaderId: uploader.String()}
	first, err := client.ListVideos(t.Context(), req)
	if err != nil || len(first.GetVideos()) != 2 || first.GetSource() != catalogv1.Source_SOURCE_PROJECTION {
		t.Fatalf("first page: %v, %v", first, err)
	}
	req.PageToken = first.GetNextPageToken()
	last, err := client.ListVideos(t.Context(), req)
	if err != nil || len(last.GetVideos()) != 1 || last.GetNextPageToken() != "" {
		t.Fatalf("last page: %v, %v", last, err)
	}
	f.peer.has(ownersVideo(id, 5, "fifth"))
	fresh, err := client.ListVideos(t.Context(), &catalogv1.ListVideosRequest{AtLeastAsFresh: token(id, 5), Wait: durationpb.New(0)})
	if err != nil || len(fresh.GetVideos()) != 4 || fresh.GetSource() != catalogv1.Source_SOURCE_AUTHORITY {
		t.Errorf("with a token: %v, %v", fresh, err)
	}
}

// Both protocols answer every mode alike, with the same metadata.
func TestGRPCAndRESTAreEqual(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	addr := f.listen(t)
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client := catalogv1.NewCatalogServiceClient(conn)
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	f.peer.has(ownersVideo(id, 2, "second"))
	for name, tc := range map[string]struct {
		mode   string
		req    *catalogv1.GetVideoRequest
		source string
		stale  bool
	}{
		"default":          {"", &catalogv1.GetVideoRequest{AtLeastAsFresh: token(id, 1)}, "projection", false},
		"minimize latency": {"minimize-latency", &catalogv1.GetVideoRequest{AtLeastAsFresh: token(id, 2), Consistency: catalogv1.Consistency_CONSISTENCY_MINIMIZE_LATENCY}, "projection", true},
		"at least":         {"at-least-as-fresh", &catalogv1.GetVideoRequest{AtLeastAsFresh: token(id, 2), Consistency: catalogv1.Consistency_CONSISTENCY_AT_LEAST_AS_FRESH}, "authority", false},
		"fully":            {"fully-consistent", &catalogv1.GetVideoRequest{Consistency: catalogv1.Consistency_CONSISTENCY_FULLY_CONSISTENT}, "authority", false},
		"stale if error":   {"at-least-as-fresh ; stale-if-error", &catalogv1.GetVideoRequest{AtLeastAsFresh: token(id, 2), StaleIfError: true}, "authority", false},
	} {
		headers := []string{"Prefer: wait=0"}
		if tc.mode != "" {
			headers = append(headers, "Consistency: "+tc.mode)
		}
		if tc.req.AtLeastAsFresh != "" {
			headers = append(headers, "Consistency-Token: "+tc.req.AtLeastAsFresh)
		}
		r := call(t, addr, "GET /v1/videos/"+id.String(), headers...)
		var md metadata.MD
		tc.req.VideoId, tc.req.Wait = id.String(), durationpb.New(0)
		resp, err := client.GetVideo(t.Context(), tc.req, grpc.Header(&md))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, header := range []string{"Consistency-Source", "Consistency-Version", "Consistency-Token"} {
			if got := md.Get(header); len(got) != 1 || got[0] == "" || got[0] != r.header.Get(header) {
				t.Errorf("%s: %s is %q over gRPC, %q over REST", name, header, got, r.header.Get(header))
			}
		}
		stale, _ := r.body["stale"].([]any)
		if r.body["source"] != tc.source || (len(stale) == 1) != tc.stale || len(resp.GetStale()) != len(stale) || float64(resp.GetVideo().GetVersion()) != r.body["version"] {
			t.Errorf("%s: %v over gRPC, %v over REST", name, resp, r.body)
		}
		if tc.stale && (dig(stale[0], "at_least") != float64(resp.GetStale()[0].GetAtLeast()) || dig(stale[0], "version") != 1.0) {
			t.Errorf("%s: stale %v over gRPC, %v over REST", name, resp.GetStale(), stale)
		}
		if tc.req.AtLeastAsFresh == "" {
			continue
		}
		list := call(t, addr, "GET /v1/videos", "Consistency: minimize-latency", "Consistency-Token: "+token(id, 9))
		lagging, err := client.ListVideos(t.Context(), &catalogv1.ListVideosRequest{AtLeastAsFresh: token(id, 9), Consistency: catalogv1.Consistency_CONSISTENCY_MINIMIZE_LATENCY})
		if lags, _ := list.body["stale"].([]any); err != nil || len(lags) != 1 || len(lagging.GetStale()) != 1 || list.header.Get("Consistency-Source") != "projection" {
			t.Errorf("lists that lack something: %v over REST, %v %v over gRPC", list.body, lagging, err)
		}
	}
}

func TestGRPCHostileRequests(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	conn := f.dial(t)
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	before := f.row(t, id)
	good := token(id, 1)
	pageToken := rest.PageToken(id, (&Query{}).filter())
	otherTenant := consistency.Token{Tenant: "another", Positions: []consistency.Position{position(id, 1)}}.String()
	noUUID := tokenOf(consistency.Position{AggregateType: "video", AggregateID: "42", Epoch: 1, Version: 1})
	type get = catalogv1.GetVideoRequest
	type list = catalogv1.ListVideosRequest
	sec := func(s int64, n int32) *durationpb.Duration { return &durationpb.Duration{Seconds: s, Nanos: n} }
	for _, tc := range []struct {
		req   proto.Message
		field string
	}{
		{&get{}, "video_id"},
		{&get{VideoId: "42"}, "video_id"},
		{&get{VideoId: strings.ReplaceAll(id.String(), "-", "")}, "video_id"},
		{&get{VideoId: "{" + id.String() + "}"}, "video_id"},
		{&get{VideoId: "urn:uuid:" + id.String()}, "video_id"},
		{&get{VideoId: id.String() + "\x00"}, "video_id"},
		{&get{VideoId: strings.Repeat("a", 60_000)}, "video_id"},
		{&get{VideoId: id.String(), AtLeastAsFresh: "garbage"}, "at_least_as_fresh"},
		{&get{VideoId: id.String(), AtLeastAsFresh: good[:len(good)-1]}, "at_least_as_fresh"},
		{&get{VideoId: id.String(), AtLeastAsFresh: good + "A"}, "at_least_as_fresh"},
		{&get{VideoId: id.String(), AtLeastAsFresh: good[:4] + " " + good[4:]}, "at_least_as_fresh"},
		{&get{VideoId: id.String(), AtLeastAsFresh: strings.Repeat("A", 10_000)}, "at_least_as_fresh"},
		{&get{VideoId: id.String(), AtLeastAsFresh: otherTenant}, "at_least_as_fresh"},
		{&get{VideoId: id.String(), AtLeastAsFresh: noUUID}, "at_least_as_fresh"},
		{&get{VideoId: id.String(), Wait: sec(-1, 0)}, "wait"},
		{&get{VideoId: id.String(), Wait: sec(0, -1)}, "wait"},
		{&get{VideoId: id.String(), Wait: sec(1, -1)}, "wait"},
		{&get{VideoId: id.String(), Wait: sec(1<<62, 0)}, "wait"},
		{&get{VideoId: id.String(), Wait: sec(-1<<62, 0), AtLeastAsFresh: good}, "wait"},
		{&get{VideoId: id.String(), Wait: sec(0, 2_000_000_000)}, "wait"},
		{&list{PageSize: -1}, "page_size"},
		{&list{PageSize: 201}, "page_size"},
		{&list{PageSize: 1<<31 - 1}, "page_size"},
		{&list{PageToken: "garbage"}, "page_token"},
		{&list{PageToken: pageToken[:20]}, "page_token"},
		{&list{PageToken: pageToken, Q: "x"}, "page_token"},
		{&list{PageToken: pageToken, UploaderId: uploader.String()}, "page_token"},
		{&list{PageToken: strings.Repeat("A", 10_000)}, "page_token"},
		{&list{UploaderId: "me"}, "uploader_id"},
		{&list{UploaderId: id.String() + " "}, "uploader_id"},
		{&list{Q: "a\x00b"}, "q"},
		{&list{Q: "a\nb"}, "q"},
		{&list{Q: "\x7f"}, "q"},
		{&list{Q: strings.Repeat("Ü", 201)}, "q"},
		{&list{Q: strings.Repeat("x", 60_000)}, "q"},
		{&list{Q: "a\u202eb"}, "q"},
		{&list{AtLeastAsFresh: "garbage"}, "at_least_as_fresh"},
		{&list{AtLeastAsFresh: otherTenant}, "at_least_as_fresh"},
		{&list{Wait: sec(-5, 0)}, "wait"},
		{&get{VideoId: id.String(), Consistency: 99}, "consistency"},
		{&get{VideoId: id.String(), Consistency: catalogv1.Consistency_CONSISTENCY_AT_LEAST_AS_FRESH}, "consistency"},
		{&list{Consistency: catalogv1.Consistency_CONSISTENCY_AT_LEAST_AS_FRESH}, "consistency"},
		{&list{Consistency: catalogv1.Consistency_CONSISTENCY_FULLY_CONSISTENT}, "consistency"},
	} {
		method, resp := catalogv1.CatalogService_GetVideo_FullMethodName, proto.Message(&catalogv1.GetVideoResponse{})
		if _, ok := tc.req.(*list); ok {
			method, resp = catalogv1.CatalogService_ListVideos_FullMethodName, &catalogv1.ListVideosResponse{}
		}
		err := conn.Invoke(t.Context(), method, tc.req, resp)
		if got := violation(err); status.Code(err) != codes.InvalidArgument || got != tc.field {
			t.Errorf("%.100s: %.100v blaming %q; want INVALID_ARGUMENT blaming %q", tc.req, err, got, tc.field)
		}
	}
	if diff := cmp.Diff(before, f.row(t, id)); diff != "" || f.rows(t) != 1 {
		t.Errorf("%d rows; the one there was:\n%s", f.rows(t), diff)
	}
	unasked(t, f)
	if _, err := catalogv1.NewCatalogServiceClient(conn).GetVideo(t.Context(), &get{VideoId: id.String(), AtLeastAsFresh: good}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// violation is the field in an error's BadRequest, if there is only one.
func violation(err error) string {
	if all := violations(err); len(all) == 1 {
		return all[0]
	}
	return ""
}

func violations(err error) (fields []string) {
	for _, d := range status.Convert(err).Details() {
		bad, _ := d.(*errdetails.BadRequest)
		for _, v := range bad.GetFieldViolations() {
			fields = append(fields, v.GetField())
		}
	}
	return fields
}
