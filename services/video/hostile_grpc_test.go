package video

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	videov1 "example.com/lockstep/proto/video/v1"
)

func TestHostileGRPC(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	a.create()
	a.call("PATCH", path(v), `{"title": "v2"}`, "Idempotency-Key", "used")
	token := a.call("GET", "/v1/videos?page_size=1", nil).field("next_page_token")
	id := v.ID.String()

	create := func(change func(*videov1.CreateVideoRequest)) func(context.Context) error {
		return func(ctx context.Context) error {
			req := &videov1.CreateVideoRequest{UploaderId: uuid.NewString(), Title: "t"}
			change(req)
			_, err := a.rpc.CreateVideo(ctx, req)
			return err
		}
	}
	update := func(v *videov1.Video, mask ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := a.rpc.UpdateVideo(ctx, &videov1.UpdateVideoRequest{Video: v, UpdateMask: &fieldmaskpb.FieldMask{Paths: mask}})
			return err
		}
	}
	get := func(id string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := a.rpc.GetVideo(ctx, &videov1.GetVideoRequest{VideoId: id})
			return err
		}
	}
	remove := func(req *videov1.DeleteVideoRequest) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := a.rpc.DeleteVideo(ctx, req)
			return err
		}
	}
	list := func(req *videov1.ListVideosRequest) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := a.rpc.ListVideos(ctx, req)
			return err
		}
	}
	key := func(keys ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			for _, k := range keys {
				ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", k)
			}
			return update(&videov1.Video{VideoId: id, Title: "v3"}, "title")(ctx)
		}
	}
	compressed := func(ctx context.Context) error {
		_, err := a.rpc.CreateVideo(ctx, &videov1.CreateVideoRequest{UploaderId: uuid.NewString(), Title: "t"}, grpc.UseCompressor(gzip.Name))
		return err
	}
	tests := []struct {
		name  string
		call  func(context.Context) error
		code  codes.Code
		field string
	}{
		{"no uploader", create(func(r *videov1.CreateVideoRequest) { r.UploaderId = "" }), codes.InvalidArgument, "uploader_id"},
		{"bad uploader", create(func(r *videov1.CreateVideoRequest) { r.UploaderId = "x" }), codes.InvalidArgument, "uploader_id"},
		{"nil uploader", create(func(r *videov1.CreateVideoRequest) { r.UploaderId = uuid.Nil.String() }), codes.InvalidArgument, "uploader_id"},
		{"no title", create(func(r *videov1.CreateVideoRequest) { r.Title = "" }), codes.InvalidArgument, "title"},
		{"title too long", create(func(r *videov1.CreateVideoRequest) { r.Title = strings.Repeat("x", maxTitle+1) }), codes.InvalidArgument, "title"},
		{"60 KB title", create(func(r *videov1.CreateVideoRequest) { r.Title = strings.Repeat("x", 60_000) }), codes.InvalidArgument, "title"},
		{"70 KB title", create(func(r *videov1.CreateVideoRequest) { r.Title = strings.Repeat("x", 70_000) }), codes.ResourceExhausted, ""},
		{"5 MB title", create(func(r *videov1.CreateVideoRequest) { r.Title = strings.Repeat("x", 5<<20) }), codes.ResourceExhausted, ""},
		{"title turned around", create(func(r *videov1.CreateVideoRequest) { r.Title = "a\u202eb" }), codes.InvalidArgument, "title"},
		{"NUL in title", create(func(r *videov1.CreateVideoRequest) { r.Title = "\x00" }), codes.InvalidArgument, "title"},
		{"escape in title", create(func(r *videov1.CreateVideoRequest) { r.Title = "\x1b[2J" }), codes.InvalidArgument, "title"},
		{"NUL in description", create(func(r *videov1.CreateVideoRequest) { r.Description = "\x00" }), codes.InvalidArgument, "description"},
		{"description too long", create(func(r *videov1.CreateVideoRequest) { r.Description = strings.Repeat("x", maxDescription+1) }), codes.InvalidArgument, "description"},
		{"negative duration", create(func(r *videov1.CreateVideoRequest) { r.DurationSeconds = -1 }), codes.InvalidArgument, "duration_seconds"},
		{"endless duration", create(func(r *videov1.CreateVideoRequest) { r.DurationSeconds = 1<<63 - 1 }), codes.InvalidArgument, "duration_seconds"},
		{"time out of range", create(func(r *videov1.CreateVideoRequest) { r.PublishedAt = &timestamppb.Timestamp{Seconds: 1 << 60} }), codes.InvalidArgument, "published_at"},
		{"time before year 1", create(func(r *videov1.CreateVideoRequest) { r.PublishedAt = &timestamppb.Timestamp{Seconds: -1 << 60} }), codes.InvalidArgument, "published_at"},
		{"negative nanoseconds", create(func(r *videov1.CreateVideoRequest) { r.PublishedAt = &timestamppb.Timestamp{Nanos: -1} }), codes.InvalidArgument, "published_at"},
		{"no video", update(nil, "title"), codes.InvalidArgument, "video_id"},
		{"bad id", update(&videov1.Video{VideoId: "x", Title: "t"}, "title"), codes.InvalidArgument, "video_id"},
		{"no mask", update(&videov1.Video{VideoId: id, Title: "t"}), codes.InvalidArgument, "update_mask"},
		{"unknown path", update(&videov1.Video{VideoId: id, Title: "t"}, "title", "colour"), codes.InvalidArgument, "update_mask"},
		{"nine paths", update(&videov1.Video{VideoId: id, Title: "t"}, slices.Repeat([]string{"title"}, 9)...), codes.InvalidArgument, "update_mask"},
		{"a hundred and one paths", update(&videov1.Video{VideoId: id}, make([]string, 101)...), codes.InvalidArgument, "update_mask.paths"},
		{"a compressed request", compressed, codes.Unimplemented, "grpc-encoding"},
		{"star", update(&videov1.Video{VideoId: id, Title: "t"}, "*"), codes.InvalidArgument, "update_mask"},
		{"camel case", update(&videov1.Video{VideoId: id}, "durationSeconds"), codes.InvalidArgument, "update_mask"},
		{"path into a field", update(&videov1.Video{VideoId: id}, "published_at.seconds"), codes.InvalidArgument, "update_mask"},
		{"mask names the version", update(&videov1.Video{VideoId: id, Version: 9}, "version"), codes.InvalidArgument, "update_mask"},
		{"mask names the uploader", update(&videov1.Video{VideoId: id, UploaderId: id}, "uploader_id"), codes.InvalidArgument, "update_mask"},
		{"title cleared", update(&videov1.Video{VideoId: id}, "title"), codes.InvalidArgument, "title"},
		{"duration below zero", update(&videov1.Video{VideoId: id, DurationSeconds: -1}, "duration_seconds"), codes.InvalidArgument, "duration_seconds"},
		{"time before year 1 in an update", update(&videov1.Video{VideoId: id, PublishedAt: &timestamppb.Timestamp{Seconds: -1 << 60}}, "published_at"), codes.InvalidArgument, "published_at"},
		{"negative expected version", remove(&videov1.DeleteVideoRequest{VideoId: id, ExpectedVersion: -1}), codes.InvalidArgument, "expected_version"},
		{"stale expected version", remove(&videov1.DeleteVideoRequest{VideoId: id, ExpectedVersion: 1}), codes.Aborted, ""},
		{"delete of a bad id", remove(&videov1.DeleteVideoRequest{VideoId: "{}"}), codes.InvalidArgument, "video_id"},
		{"long reason", remove(&videov1.DeleteVideoRequest{VideoId: id, Reason: strings.Repeat("x", maxReason+1)}), codes.InvalidArgument, "reason"},
		{"NUL in reason", remove(&videov1.DeleteVideoRequest{VideoId: id, Reason: "\x00"}), codes.InvalidArgument, "reason"},
		{"get without id", get(""), codes.InvalidArgument, "video_id"},
		{"get of a URN", get("urn:uuid:" + id), codes.InvalidArgument, "video_id"},
		{"get of an unknown video", get(uuid.NewString()), codes.NotFound, ""},
		{"negative page size", list(&videov1.ListVideosRequest{PageSize: -1}), codes.InvalidArgument, "page_size"},
		{"huge page size", list(&videov1.ListVideosRequest{PageSize: 1 << 30}), codes.InvalidArgument, "page_size"},
		{"truncated page token", list(&videov1.ListVideosRequest{PageToken: token[:9]}), codes.InvalidArgument, "page_token"},
		{"token of another list", list(&videov1.ListVideosRequest{PageToken: token, UploaderId: id}), codes.InvalidArgument, "page_token"},
		{"bad uploader filter", list(&videov1.ListVideosRequest{UploaderId: "x"}), codes.InvalidArgument, "uploader_id"},
		{"reused key", key("used"), codes.InvalidArgument, "Idempotency-Key"},
		{"empty key", key(""), codes.InvalidArgument, "Idempotency-Key"},
		{"key with a space", key("a b"), codes.InvalidArgument, "Idempotency-Key"},
		{"two keys", key("a", "b"), codes.InvalidArgument, "Idempotency-Key"},
		{"key too long", key(strings.Repeat("k", 256)), codes.InvalidArgument, "Idempotency-Key"},
	}
	before := a.rows()
	for _, test := range tests {
		err := test.call(t.Context())
		if status.Code(err) != test.code || test.field != "" && !slices.Contains(violations(err), test.field) {
			t.Errorf("%s: %v %v, want %v naming %q", test.name, err, violations(err), test.code, test.field)
		}
	}
	if after := a.rows(); after != before {
		t.Errorf("rows %+v became %+v", before, after)
	}
	if err := update(&videov1.Video{VideoId: id, Title: "still alive"}, "title")(t.Context()); err != nil {
		t.Errorf("a good request afterwards: %v", err)
	}
}

// A fault outside of the mask is none, and a name in the mask is the only fault of its field.
func TestTheMaskDecidesWhatIsChecked(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.create().ID.String()
	outside := &videov1.Video{VideoId: id, Title: "u", DurationSeconds: -1, PublishedAt: &timestamppb.Timestamp{Nanos: -1}, UploaderId: "x"}
	for _, test := range []struct {
		video *videov1.Video
		mask  []string
		want  []string
	}{
		{outside, []string{"title"}, nil},
		{outside, []string{"title", "published_at", "duration_seconds"}, []string{"published_at", "duration_seconds"}},
		{&videov1.Video{VideoId: id, UploaderId: uuid.NewString()}, []string{"uploader_id"}, []string{"update_mask"}},
	} {
		_, err := a.rpc.UpdateVideo(t.Context(), &videov1.UpdateVideoRequest{Video: test.video, UpdateMask: &fieldmaskpb.FieldMask{Paths: test.mask}})
		if got := violations(err); !slices.Equal(got, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("%v of %v: %v, want %v", test.mask, test.video, err, test.want)
		}
	}
}

// violations are the fields in an error's BadRequest.
func violations(err error) (fields []string) {
	for _, detail := range status.Convert(err).Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				fields = append(fields, v.GetField())
			}
		}
	}
	return fields
}
