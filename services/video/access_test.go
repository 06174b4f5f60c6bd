package video

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/authtest"
	videov1 "example.com/lockstep/proto/video/v1"
)

// Each route and RPC that is registered, with each kind of identity. A new one fails here
// until it has a rule and a request.
func TestAccess(t *testing.T) {
	t.Parallel()
	issuers := authtest.New(t)
	a := newAPIFor(t, issuers.Callers)
	operations, err := a.server.Operations()
	if err != nil {
		t.Fatal(err)
	}
	table := authtest.Matrix{
		Issuers: issuers, Rules: access, Operations: operations, URL: a.url, Conn: a.conn,
		Shared: []string{
			"GET /v1/videos", "GET /v1/videos/{id}",
			"/video.v1.VideoService/GetVideo", "/video.v1.VideoService/ListVideos",
		},
		Bodies: map[string]string{
			"POST /v1/videos":                                `{"uploader_id": "{user_id}", "title": "t"}`,
			"PATCH /v1/videos/{id}":                          `{"title": "u"}`,
			"PUT /v1/users/{user_id}/engagements/{video_id}": `{"bookmarked": true}`,

			"/video.v1.VideoService/CreateVideo": `{"uploader_id": "{user_id}", "title": "t"}`,
			"/video.v1.VideoService/GetVideo":    `{"video_id": "{video_id}"}`,
			"/video.v1.VideoService/ListVideos":  `{}`,
			"/video.v1.VideoService/UpdateVideo": `{"video": {"video_id": "{video_id}", "title": "u"}, "update_mask": "title"}`,
			"/video.v1.VideoService/DeleteVideo": `{"video_id": "{video_id}"}`,

			"/video.v1.EngagementService/GetEngagement":    `{"user_id": "{user_id}", "video_id": "{video_id}"}`,
			"/video.v1.EngagementService/ListEngagements":  `{"user_id": "{user_id}"}`,
			"/video.v1.EngagementService/PutEngagement":    `{"user_id": "{user_id}", "video_id": "{video_id}"}`,
			"/video.v1.EngagementService/DeleteEngagement": `{"user_id": "{user_id}", "video_id": "{video_id}"}`,

			replication + "GetVideoRows":       `{"video_ids": ["{video_id}"]}`,
			replication + "GetEngagementRows":  `{"user_id": "{user_id}", "video_ids": ["{video_id}"]}`,
			replication + "ListVideoRows":      `{}`,
			replication + "ListEngagementRows": `{}`,
			replication + "DigestRows":         `{"definition": ` + definitionOfVideos + `, "from": "{video_id}"}`,
			replication + "ListRowDigests":     `{"definition": ` + definitionOfVideos + `, "from": "{video_id}", "until": "` + uuid.Max.String() + `"}`,
		},
		Values: func() map[string]string {
			v := a.liked()
			return map[string]string{
				"id": v.ID.String(), "video_id": v.ID.String(), "user_id": owner.User.String(),
			}
		},
	}.Run(t)
	authtest.CheckTable(t, "../../docs/security.md", "video", table)
}

const replication = "/video.replication.v1.ReplicationService/"

const definitionOfVideos = `{"aggregate_type": "video", "encoding": 1, "fields": ["title"]}`

// The document asks for a token where the rules do, and knows the refusals.
func TestDocumentHasTheRules(t *testing.T) {
	t.Parallel()
	issuers := authtest.New(t)
	a, c := newAPIFor(t, issuers.Callers), newContract(t)
	v := a.liked()
	for route, operations := range c.doc.Paths {
		path := strings.NewReplacer("{id}", v.ID.String(), "{video_id}", v.ID.String(), "{user_id}", owner.User.String()).Replace(route)
		for method, raw := range operations {
			if method == "parameters" {
				continue
			}
			method = strings.ToUpper(method)
			var op struct {
				Security  *[]any
				Responses map[string]any
			}
			if err := json.Unmarshal(raw, &op); err != nil {
				t.Fatal(err)
			}
			rule := access[method+" "+route]
			open := op.Security != nil && len(*op.Security) == 0
			if public := rule == auth.Public || rule == auth.Closed; open != public { // Closed: internal/serve's own
				t.Errorf("%s %s: security is %v, the rule %v", method, route, op.Security, rule)
			}
			if (op.Responses["401"] != nil) == open || (op.Responses["429"] != nil) == open || (op.Responses["403"] != nil) != (rule == auth.Users) {
				t.Errorf("%s %s: the responses are %v, the rule is %v", method, route, op.Responses, rule)
			}
			if open {
				continue
			}
			c.answer(method, route, "401", a.call(method, path, nil))
			if rule == auth.Users {
				c.answer(method, route, "403", a.call(method, path, nil, "X-Service-Authorization", issuers.Header("service").Get("X-Service-Authorization")))
			}
		}
	}
}

// A user need not say who they are twice, and cannot say that they are another one. An
// admin says whose the video is.
func TestTheUploaderIsTheCaller(t *testing.T) {
	t.Parallel()
	issuers := authtest.New(t)
	a, c := newAPIFor(t, issuers.Callers), newContract(t)
	another := uuid.NewString()
	for _, tc := range []struct {
		caller, uploader string
		status           int
		want             string
	}{
		{"owner", "", 201, owner.User.String()},
		{"owner", owner.User.String(), 201, owner.User.String()},
		{"owner", another, 403, ""},
		{"owner", uuid.Nil.String(), 400, ""},
		{"admin", "", 400, ""},
		{"admin", another, 201, another},
		{"service", another, 403, ""},
	} {
		body := map[string]any{"title": "t"}
		req := &videov1.CreateVideoRequest{Title: "t", UploaderId: tc.uploader}
		if tc.uploader != "" {
			body["uploader_id"] = tc.uploader
		}
		if err := c.schema("components", "schemas", "NewVideo").Validate(body); err != nil {
			t.Error(err)
		}
		ctx := t.Context()
		var headers []string
		for name, values := range issuers.Header(tc.caller) {
			headers = append(headers, name, values[0])
			ctx = metadata.AppendToOutgoingContext(ctx, name, values[0])
		}
		r := a.call("POST", "/v1/videos", body, headers...)
		if r.Status != tc.status || r.Status == 201 && r.field("uploader_id") != tc.want || r.Status == 400 && !blames(r, "uploader_id") {
			t.Errorf("%s, uploader %q: %d %s", tc.caller, tc.uploader, r.Status, r.Raw)
		}
		resp, err := a.rpc.CreateVideo(ctx, req)
		code := map[int]codes.Code{201: codes.OK, 400: codes.InvalidArgument, 403: codes.PermissionDenied}[tc.status]
		if status.Code(err) != code || resp.GetVideo().GetUploaderId() != tc.want {
			t.Errorf("%s, uploader %q over gRPC: %v, %v", tc.caller, tc.uploader, resp, err)
		}
	}
}
