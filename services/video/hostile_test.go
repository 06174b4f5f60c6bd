package video

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	videov1 "example.com/lockstep/proto/video/v1"
)

// blames reports whether r is a problem document whose errors name field.
func blames(r reply, field string) bool {
	list, _ := r.Body["errors"].([]any)
	return r.Header.Get("Content-Type") == "application/problem+json" && slices.ContainsFunc(list, func(e any) bool {
		return e.(map[string]any)["field"] == field
	})
}

func TestHostileREST(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	a.call("PATCH", path(v), `{"title": "v2"}`, "Idempotency-Key", "used")
	a.call("POST", "/v1/videos", draft(nil), "Idempotency-Key", "used")
	token := a.call("GET", "/v1/videos?page_size=1", nil).field("next_page_token")
	if token == "" {
		t.Fatal("no page token to cut")
	}
	with := func(field string, value any) map[string]any {
		return draft(func(d map[string]any) { d[field] = value })
	}
	without := func(field string) map[string]any {
		return draft(func(d map[string]any) { delete(d, field) })
	}
	raw := func(member string) string {
		return fmt.Sprintf(`{"uploader_id": %q, "title": "t", %s}`, uuid.New(), member)
	}
	const post, videos = "POST", "/v1/videos"
	tests := []struct {
		name, method, path string
		body               any
		headers            []string
		status             int
		field              string
	}{
		{"empty body", post, videos, "", nil, 400, "body"},
		{"cut-off JSON", post, videos, `{"title": "t"`, nil, 400, "body"},
		{"two JSON values", post, videos, `{} {}`, nil, 400, "body"},
		{"null", post, videos, `null`, nil, 400, "body"},
		{"array", post, videos, `[]`, nil, 400, "body"},
		{"text", post, videos, `"video"`, nil, 400, "body"},
		{"deep nesting", post, videos, strings.Repeat("[", 100_000), nil, 400, "body"},
		{"invalid UTF-8", post, videos, raw("\"description\": \"\xff\""), nil, 400, "body"},
		{"form", post, videos, "title=t", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "body"},
		{"merge patch on POST", post, videos, raw(`"description": ""`), []string{"Content-Type", "application/merge-patch+json"}, 415, "body"},
		{"unknown field", post, videos, with("views", 1), nil, 400, "views"},
		{"own id", post, videos, with("video_id", uuid.NewString()), nil, 400, "video_id"},
		{"own version", post, videos, with("version", 7), nil, 400, "version"},
		{"field in other case", post, videos, with("Title", "t"), nil, 400, "Title"},
		{"field twice", post, videos, raw(`"title": "u"`), nil, 400, "title"},
		{"no uploader", post, videos, without("uploader_id"), nil, 400, "uploader_id"},
		{"null uploader", post, videos, with("uploader_id", nil), nil, 400, "uploader_id"},
		{"bad uploader", post, videos, with("uploader_id", "42"), nil, 400, "uploader_id"},
		{"uploader in braces", post, videos, with("uploader_id", "{"+uuid.NewString()+"}"), nil, 400, "uploader_id"},
		{"number as uploader", post, videos, with("uploader_id", 42), nil, 400, "uploader_id"},
		{"no title", post, videos, without("title"), nil, 400, "title"},
		{"empty title", post, videos, with("title", ""), nil, 400, "title"},
		{"number as title", post, videos, with("title", 1), nil, 400, "title"},
		{"null title", post, videos, with("title", nil), nil, 400, "title"},
		{"title too long", post, videos, with("title", strings.Repeat("é", maxTitle+1)), nil, 400, "title"},
		{"1 MB title", post, videos, with("title", strings.Repeat("x", 1<<20)), nil, 413, "body"},
		{"oversize body", post, videos, strings.Repeat(" ", 3<<20), nil, 413, "body"},
		{"newline in title", post, videos, with("title", "a\nb"), nil, 400, "title"},
		{"NUL in title", post, videos, with("title", "a\x00b"), nil, 400, "title"},
		{"NUL in description", post, videos, with("description", "a\x00b"), nil, 400, "description"},
		{"C1 control in description", post, videos, with("description", "a\u0085b"), nil, 400, "description"},
		{"description too long", post, videos, with("description", strings.Repeat("x", maxDescription+1)), nil, 400, "description"},
		{"negative duration", post, videos, with("duration_seconds", -1), nil, 400, "duration_seconds"},
		{"fractional duration", post, videos, with("duration_seconds", 1.5), nil, 400, "duration_seconds"},
		{"text as duration", post, videos, with("duration_seconds", "60"), nil, 400, "duration_seconds"},
		{"null duration", post, videos, with("duration_seconds", nil), nil, 400, "duration_seconds"},
		{"duration over 64 bits", post, videos, raw(`"duration_seconds": 9223372036854775808`), nil, 400, "duration_seconds"},
		{"duration of a century", post, videos, with("duration_seconds", 3_155_760_000), nil, 400, "duration_seconds"},
		{"bad time", post, videos, with("published_at", "yesterday"), nil, 400, "published_at"},
		{"time without zone", post, videos, with("published_at", "2026-01-01T00:00:00"), nil, 400, "published_at"},
		{"unix time", post, videos, with("published_at", 1), nil, 400, "published_at"},
		{"year 0", post, videos, with("published_at", "0000-01-01T00:00:00Z"), nil, 400, "published_at"},
		{"year 10000 in UTC", post, videos, with("published_at", "9999-12-31T23:59:59-01:00"), nil, 400, "published_at"},
		{"empty key", post, videos, draft(nil), []string{"Idempotency-Key", ""}, 400, "Idempotency-Key"},
		{"key with a space", post, videos, draft(nil), []string{"Idempotency-Key", "a b"}, 400, "Idempotency-Key"},
		{"key not ASCII", post, videos, draft(nil), []string{"Idempotency-Key", "ключ"}, 400, "Idempotency-Key"},
		{"key too long", post, videos, draft(nil), []string{"Idempotency-Key", strings.Repeat("k", 256)}, 400, "Idempotency-Key"},
		{"two keys", post, videos, draft(nil), []string{"Idempotency-Key", "a", "Idempotency-Key", "b"}, 400, "Idempotency-Key"},
		{"used key", post, videos, draft(nil), []string{"Idempotency-Key", "used"}, 422, "Idempotency-Key"},

		{"bad id", "GET", "/v1/videos/42", nil, nil, 400, "video_id"},
		{"id of 32 digits", "GET", "/v1/videos/" + strings.ReplaceAll(uuid.NewString(), "-", ""), nil, nil, 400, "video_id"},
		{"id with NUL", "GET", "/v1/videos/%00", nil, nil, 400, "video_id"},
		{"page size 0", "GET", "/v1/videos?page_size=0", nil, nil, 400, "page_size"},
		{"negative page size", "GET", "/v1/videos?page_size=-1", nil, nil, 400, "page_size"},
		{"huge page size", "GET", "/v1/videos?page_size=201", nil, nil, 400, "page_size"},
		{"page size over 64 bits", "GET", "/v1/videos?page_size=99999999999999999999", nil, nil, 400, "page_size"},
		{"text as page size", "GET", "/v1/videos?page_size=ten", nil, nil, 400, "page_size"},
		{"truncated page token", "GET", "/v1/videos?page_token=" + token[:len(token)-4], nil, nil, 400, "page_token"},
		{"garbage page token", "GET", "/v1/videos?page_token=!", nil, nil, 400, "page_token"},
		{"bad uploader filter", "GET", "/v1/videos?uploader_id=me", nil, nil, 400, "uploader_id"},
		{"empty uploader filter", "GET", "/v1/videos?uploader_id=", nil, nil, 400, "uploader_id"},
		{"unknown parameter", "GET", "/v1/videos?sort=title", nil, nil, 400, "sort"},
		{"parameter twice", "GET", "/v1/videos?page_size=1&page_size=2", nil, nil, 400, "page_size"},
		{"broken query", "GET", "/v1/videos?page_size=%zz", nil, nil, 400, "query"},

		{"patch of a bad id", "PATCH", "/v1/videos/42", `{"title": "x"}`, nil, 400, "video_id"},
		{"patch of null", "PATCH", path(v), `null`, nil, 400, "body"},
		{"patch of the uploader", "PATCH", path(v), with("uploader_id", uuid.NewString()), nil, 400, "uploader_id"},
		{"patch of the id", "PATCH", path(v), `{"video_id": null}`, nil, 400, "video_id"},
		{"patch of the version", "PATCH", path(v), `{"version": 9}`, nil, 400, "version"},
		{"patch of created_at", "PATCH", path(v), `{"created_at": "2026-01-01T00:00:00Z"}`, nil, 400, "created_at"},
		{"patch of updated_at", "PATCH", path(v), `{"updated_at": null}`, nil, 400, "updated_at"},
		{"patch of an unknown field", "PATCH", path(v), `{"colour": 1}`, nil, 400, "colour"},
		{"title to null", "PATCH", path(v), `{"title": null}`, nil, 400, "title"},
		{"title to nothing", "PATCH", path(v), `{"title": ""}`, nil, 400, "title"},
		{"duration to null", "PATCH", path(v), `{"duration_seconds": null}`, nil, 400, "duration_seconds"},
		{"duration to less than none", "PATCH", path(v), `{"duration_seconds": -5}`, nil, 400, "duration_seconds"},
		{"JSON patch", "PATCH", path(v), `[]`, []string{"Content-Type", "application/json-patch+json"}, 415, "body"},
		{"stale If-Match", "PATCH", path(v), `{"title": "x"}`, []string{"If-Match", `"1"`}, 412, ""},
		{"weak If-Match", "PATCH", path(v), `{"title": "x"}`, []string{"If-Match", `W/"2"`}, 400, "If-Match"},
		{"bare If-Match", "PATCH", path(v), `{"title": "x"}`, []string{"If-Match", `2`}, 400, "If-Match"},
		{"If-Match list", "PATCH", path(v), `{"title": "x"}`, []string{"If-Match", `"1", "2"`}, 400, "If-Match"},
		{"If-Match twice", "PATCH", path(v), `{"title": "x"}`, []string{"If-Match", `"2"`, "If-Match", `"2"`}, 400, "If-Match"},
		{"negative If-Match", "DELETE", path(v), nil, []string{"If-Match", `"-2"`}, 400, "If-Match"},
		{"padded If-Match", "DELETE", path(v), nil, []string{"If-Match", `"02"`}, 400, "If-Match"},
		{"empty If-Match", "DELETE", path(v), nil, []string{"If-Match", ``}, 400, "If-Match"},
		{"reused key", "PATCH", path(v), `{"title": "v3"}`, []string{"Idempotency-Key", "used"}, 422, "Idempotency-Key"},
		{"long reason", "DELETE", path(v) + "?reason=" + strings.Repeat("x", maxReason+1), nil, nil, 400, "reason"},
		{"reason twice", "DELETE", path(v) + "?reason=a", `{"reason": "b"}`, nil, 400, "reason"},
		{"NUL in reason", "DELETE", path(v) + "?reason=%00", nil, nil, 400, "reason"},
		{"reason not UTF-8", "DELETE", path(v) + "?reason=%ff", nil, nil, 400, "reason"},
		{"number as reason", "DELETE", path(v), `{"reason": 1}`, nil, 400, "reason"},
		{"unknown path", "GET", "/v2/videos", nil, nil, 404, ""},
		{"unknown method", "PUT", path(v), `{}`, nil, 405, ""},
	}
	before := a.rows()
	for _, test := range tests {
		r := a.call(test.method, test.path, test.body, test.headers...)
		if r.Status != test.status || r.field("status") != fmt.Sprint(test.status) ||
			r.Header.Get("Content-Type") != "application/problem+json" || test.field != "" && !blames(r, test.field) {
			t.Errorf("%s: %d %.300s, want %d naming %q", test.name, r.Status, r.Raw, test.status, test.field)
		}
	}
	if after := a.rows(); after != before {
		t.Errorf("rows %+v became %+v", before, after)
	}
	if r := a.call("PATCH", path(v), `{"title": "still alive"}`, "If-Match", `"2"`); r.Status != http.StatusOK {
		t.Errorf("a good request afterwards: %d %s", r.Status, r.Raw)
	}
}

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
		{"1 MB title", create(func(r *videov1.CreateVideoRequest) { r.Title = strings.Repeat("x", 1<<20) }), codes.InvalidArgument, "title"},
		{"5 MB title", create(func(r *videov1.CreateVideoRequest) { r.Title = strings.Repeat("x", 5<<20) }), codes.ResourceExhausted, ""},
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
