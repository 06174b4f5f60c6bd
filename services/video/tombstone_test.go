package video

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	videov1 "example.com/lockstep/proto/video/v1"
)

const deletedTitle = "Nobody may read this"

// deleted are a deleted video and a deleted engagement with it.
func (a *api) deleted() (user, video string) {
	a.Helper()
	video = a.call("POST", "/v1/videos", draft(func(d map[string]any) { d["title"] = deletedTitle })).field("video_id")
	user = uuid.NewString()
	a.deletedEngagement(user, video)
	if r := a.call("DELETE", "/v1/videos/"+video, nil); r.Status != http.StatusOK {
		a.Fatalf("%d %s", r.Status, r.Raw)
	}
	if rows := a.videoRows(video).GetVideos(); len(rows) != 1 || rows[0].GetDeletedAt() == nil {
		a.Fatalf("a replica gets %v", rows)
	}
	return user, video
}

// usersFiles have a service of the API for users each.
var usersFiles = []protoreflect.FileDescriptor{
	videov1.File_video_v1_video_service_proto,
	videov1.File_video_v1_engagement_service_proto,
}

// usersMethods are the methods of the API for users.
func usersMethods() (methods []protoreflect.MethodDescriptor) {
	for _, file := range usersFiles {
		for i := range file.Services().Len() {
			all := file.Services().Get(i).Methods()
			for j := range all.Len() {
				methods = append(methods, all.Get(j))
			}
		}
	}
	return methods
}

// No call of the API for users returns a deleted row, and each request that could ask for
// one is refused.
func TestTombstonesAreForReplicas(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	user, video := a.deleted()
	refused := 0
	for _, method := range usersMethods() {
		name := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
		req, resp := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
		for field, value := range map[protoreflect.Name]string{"video_id": video, "user_id": user} {
			if f := method.Input().Fields().ByName(field); f != nil {
				req.Set(f, protoreflect.ValueOfString(value))
			}
		}
		err := a.conn.Invoke(t.Context(), name, req, resp)
		if shown := resp.String() + status.Convert(err).String(); strings.Contains(shown, deletedTitle) || strings.Contains(resp.String(), video) {
			t.Errorf("%s shows what was deleted: %s", name, shown)
		}
		flag := method.Input().Fields().ByName("include_deleted")
		if flag == nil {
			continue
		}
		refused++
		req.Set(flag, protoreflect.ValueOfBool(true))
		err = a.conn.Invoke(t.Context(), name, req, resp)
		if status.Code(err) != codes.InvalidArgument || !slices.Equal(violations(err), []string{"include_deleted"}) {
			t.Errorf("%s with include_deleted: %v", name, err)
		}
	}
	if want := 2 * len(usersFiles); refused != want {
		t.Errorf("%d methods have include_deleted, want a read and a list of each service, %d", refused, want)
	}
	for target, want := range map[string]int{
		"/v1/videos/" + video: http.StatusGone, "/v1/videos": http.StatusOK,
		"/v1/videos?include_deleted=true": http.StatusBadRequest, "/v1/videos/" + video + "?include_deleted=true": http.StatusBadRequest,
	} {
		r := a.call("GET", target, nil)
		if r.Status != want || strings.Contains(string(r.Raw), deletedTitle) || want == http.StatusBadRequest && !blames(r, "include_deleted") {
			t.Errorf("%s: %d %s, want %d", target, r.Status, r.Raw, want)
		}
	}
}

// A tombstone has ids, version and times, and nothing else: in the table, for replicas, in
// the event, and in the answer that an idempotency key keeps.
func TestTombstonesAreEmpty(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.call("POST", "/v1/videos", draft(func(d map[string]any) {
		d["title"], d["description"], d["published_at"] = deletedTitle, deletedTitle, "2026-01-02T03:04:05Z"
	})).field("video_id")
	if r := a.call("DELETE", "/v1/videos/"+id, nil, "Idempotency-Key", "k"); r.Status != http.StatusOK {
		t.Fatalf("%d %s", r.Status, r.Raw)
	}
	row := a.videoRows(id).GetVideos()[0]
	if row.GetTitle() != "" || row.GetDescription() != "" || row.GetDurationSeconds() != 0 || row.GetPublishedAt() != nil {
		t.Errorf("a replica gets %v", row)
	}
	if row.GetUploaderId() == "" || row.GetVersion() != 2 || row.GetDeletedAt() == nil || row.GetCreatedAt() == nil {
		t.Errorf("the tombstone lacks what it keeps: %v", row)
	}
	for _, query := range []string{
		`SELECT to_jsonb(v)::text FROM videos v WHERE video_id = $1::uuid`,
		`SELECT encode(payload, 'escape') FROM outbox WHERE aggregate_id = $1 AND version = 2`,
		`SELECT encode(response, 'escape') FROM idempotency_keys WHERE key = 'k' AND operation LIKE '%' || $1`,
	} {
		var text string
		if err := a.db.QueryRow(t.Context(), query, id).Scan(&text); err != nil || text == "" || strings.Contains(text, deletedTitle) {
			t.Errorf("%s: %q, %v", query, text, err)
		}
	}
}
