package video

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	videov1 "example.com/lockstep/proto/video/v1"
)

// blames reports whether r is a problem document with an error for field.
func blames(r reply, field string) bool {
	list, _ := r.Body["errors"].([]any)
	return r.Header.Get("Content-Type") == "application/problem+json" && slices.ContainsFunc(list, func(e any) bool {
		return e.(map[string]any)["field"] == field
	})
}

// hostile is a request that is refused with a status, and a problem that names a field.
type hostile struct {
	name, method, path string
	body               any
	headers            []string
	status             int
	field              string
}

// refuses sends requests. Each is refused, and none leaves a row.
func (a *api) refuses(requests []hostile) {
	a.Helper()
	before := a.rows()
	for _, h := range requests {
		r := a.call(h.method, h.path, h.body, h.headers...)
		if r.Status != h.status || r.field("status") != fmt.Sprint(h.status) ||
			r.Header.Get("Content-Type") != "application/problem+json" || h.field != "" && !blames(r, h.field) {
			a.Errorf("%s: %d %.300s, want %d naming %q", h.name, r.Status, r.Raw, h.status, h.field)
		}
	}
	if after := a.rows(); after != before {
		a.Errorf("rows %+v became %+v", before, after)
	}
}

// Every fault of a list is named, by both protocols.
func TestEveryFaultOfAListIsNamed(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	r := a.call("GET", "/v1/videos?sort=title&page_size=0&uploader_id=me&page_token=x", nil)
	for _, field := range []string{"sort", "page_size", "uploader_id", "page_token"} {
		if !blames(r, field) {
			t.Errorf("%s is not named: %d %s", field, r.Status, r.Raw)
		}
	}
	_, err := a.rpc.ListVideos(t.Context(), &videov1.ListVideosRequest{PageSize: -1, UploaderId: "me", PageToken: "x"})
	if got, want := violations(err), []string{"uploader_id", "page_size", "page_token"}; !slices.Equal(got, want) {
		t.Errorf("over gRPC: %v, want %v", got, want)
	}
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
	a.refuses([]hostile{
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
		{"title turned around", post, videos, with("title", "a\u202eb"), nil, 400, "title"},
		{"title with a zero-width space", post, videos, with("title", "a\u200bb"), nil, 400, "title"},
		{"title of two lines", post, videos, with("title", "a\u2028b"), nil, 400, "title"},
		{"title of spaces", post, videos, with("title", "  "), nil, 400, "title"},
		{"a hundred and one members", post, videos, "{" + strings.Repeat(`"title": "",`, 100) + `"title": ""}`, nil, 400, "body"},
		{"reason turned around", "DELETE", path(v) + "?reason=%E2%80%AE", nil, nil, 400, "reason"},
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
		{"hour of one digit", post, videos, with("published_at", "2020-01-01T1:00:00Z"), nil, 400, "published_at"},
		{"fraction behind a comma", post, videos, with("published_at", "2020-01-01T01:00:00,5Z"), nil, 400, "published_at"},
		{"offset of a day", post, videos, with("published_at", "2020-01-01T00:00:00+24:00"), nil, 400, "published_at"},
		{"leap second", post, videos, with("published_at", "2016-12-31T23:59:60Z"), nil, 400, "published_at"},
		{"unix time", post, videos, with("published_at", 1), nil, 400, "published_at"},
		{"year 0", post, videos, with("published_at", "0000-01-01T00:00:00Z"), nil, 400, "published_at"},
		{"year 10000 in UTC", post, videos, with("published_at", "9999-12-31T23:59:59-01:00"), nil, 400, "published_at"},
		{"empty key", post, videos, draft(nil), []string{"Idempotency-Key", ""}, 400, "Idempotency-Key"},
		{"key with a space", post, videos, draft(nil), []string{"Idempotency-Key", "a b"}, 400, "Idempotency-Key"},
		{"key not ASCII", post, videos, draft(nil), []string{"Idempotency-Key", "ключ"}, 400, "Idempotency-Key"},
		{"key too long", post, videos, draft(nil), []string{"Idempotency-Key", strings.Repeat("k", 256)}, 400, "Idempotency-Key"},
		{"two keys", post, videos, draft(nil), []string{"Idempotency-Key", "a", "Idempotency-Key", "b"}, 400, "Idempotency-Key"},
		{"used key", post, videos, draft(nil), []string{"Idempotency-Key", "used"}, 422, "Idempotency-Key"},

		{"half an emoji", post, videos, raw(`"description": "\ud83d"`), nil, 400, "description"},
		{"parameter of a POST", post, videos + "?dry_run=true", draft(nil), nil, 400, "dry_run"},
		{"If-Match on POST", post, videos, draft(nil), []string{"If-Match", `"1"`}, 400, "If-Match"},
		{"If-None-Match on POST", post, videos, draft(nil), []string{"If-None-Match", `*`}, 400, "If-None-Match"},

		{"bad id", "GET", "/v1/videos/42", nil, nil, 400, "video_id"},
		{"id of 32 digits", "GET", "/v1/videos/" + strings.ReplaceAll(uuid.NewString(), "-", ""), nil, nil, 400, "video_id"},
		{"id with NUL", "GET", "/v1/videos/%00", nil, nil, 400, "video_id"},
		{"parameter of a GET", "GET", path(v) + "?fields=title", nil, nil, 400, "fields"},
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
		{"parameter of a PATCH", "PATCH", path(v) + "?title=x", `{"title": "x"}`, nil, 400, "title"},
		{"JSON patch", "PATCH", path(v), `[]`, []string{"Content-Type", "application/json-patch+json"}, 415, "body"},
		{"stale If-Match", "PATCH", path(v), `{"title": "x"}`, []string{"If-Match", `"1"`}, 412, ""},
		{"weak If-Match", "PATCH", path(v), `{"title": "x"}`, []string{"If-Match", `W/"2"`}, 412, ""},
		{"bare If-Match", "PATCH", path(v), `{"title": "x"}`, []string{"If-Match", `2`}, 400, "If-Match"},
		{"If-Match list", "PATCH", path(v), `{"title": "x"}`, []string{"If-Match", `"1", W/"2"`}, 412, ""},
		{"If-Match twice", "PATCH", path(v), `{"title": "x"}`, []string{"If-Match", `"1"`, "If-Match", `"3"`}, 412, ""},
		{"If-Match list with *", "PATCH", path(v), `{"title": "x"}`, []string{"If-Match", `"2", *`}, 400, "If-Match"},
		{"negative If-Match", "DELETE", path(v), nil, []string{"If-Match", `"-2"`}, 412, ""},
		{"padded If-Match", "DELETE", path(v), nil, []string{"If-Match", `"02"`}, 412, ""},
		{"empty If-Match", "DELETE", path(v), nil, []string{"If-Match", ``}, 400, "If-Match"},
		{"If-None-Match on PATCH", "PATCH", path(v), `{"title": "x"}`, []string{"If-None-Match", `"9"`}, 400, "If-None-Match"},
		{"If-Unmodified-Since", "PATCH", path(v), `{"title": "x"}`, []string{"If-Unmodified-Since", "Sat, 29 Oct 1994 19:43:31 GMT"}, 400, "If-Unmodified-Since"},
		{"reused key", "PATCH", path(v), `{"title": "v3"}`, []string{"Idempotency-Key", "used"}, 422, "Idempotency-Key"},
		{"long reason", "DELETE", path(v) + "?reason=" + strings.Repeat("x", maxReason+1), nil, nil, 400, "reason"},
		{"reason twice", "DELETE", path(v) + "?reason=a", `{"reason": "b"}`, nil, 400, "reason"},
		{"NUL in reason", "DELETE", path(v) + "?reason=%00", nil, nil, 400, "reason"},
		{"reason not UTF-8", "DELETE", path(v) + "?reason=%ff", nil, nil, 400, "reason"},
		{"other parameter of a DELETE", "DELETE", path(v) + "?why=x", nil, nil, 400, "why"},
		{"an empty reason and another", "DELETE", path(v) + "?reason=a", `{"reason": ""}`, nil, 400, "reason"},
		{"a reason and an empty one", "DELETE", path(v) + "?reason=", `{"reason": "b"}`, nil, 400, "reason"},
		{"null as reason", "DELETE", path(v), `{"reason": null}`, nil, 400, "reason"},
		{"number as reason", "DELETE", path(v), `{"reason": 1}`, nil, 400, "reason"},
		{"unknown path", "GET", "/v2/videos", nil, nil, 404, ""},
		{"unknown method", "PUT", path(v), `{}`, nil, 405, ""},
	})
	if r := a.call("PATCH", path(v), `{"title": "still alive"}`, "If-Match", `"2"`); r.Status != http.StatusOK {
		t.Errorf("a good request afterwards: %d %s", r.Status, r.Raw)
	}
}
