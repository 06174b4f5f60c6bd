package video

import (
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/authtest"
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
			"/video.v1.VideoService/GetVideo", "/video.v1.VideoService/GetVideos", "/video.v1.VideoService/ListVideos",
		},
		Bodies: map[string]string{
			"POST /v1/videos":                                `{"uploader_id": "{user_id}", "title": "t"}`,
			"PATCH /v1/videos/{id}":                          `{"title": "u"}`,
			"PUT /v1/users/{user_id}/engagements/{video_id}": `{"bookmarked": true}`,

			"/video.v1.VideoService/CreateVideo": `{"uploader_id": "{user_id}", "title": "t"}`,
			"/video.v1.VideoService/GetVideo":    `{"video_id": "{video_id}"}`,
			"/video.v1.VideoService/GetVideos":   `{"video_ids": ["{video_id}"]}`,
			"/video.v1.VideoService/ListVideos":  `{}`,
			"/video.v1.VideoService/UpdateVideo": `{"video": {"video_id": "{video_id}", "title": "u"}, "update_mask": "title"}`,
			"/video.v1.VideoService/DeleteVideo": `{"video_id": "{video_id}"}`,

			"/video.v1.EngagementService/GetEngagement":    `{"user_id": "{user_id}", "video_id": "{video_id}"}`,
			"/video.v1.EngagementService/GetEngagements":   `{"user_id": "{user_id}", "video_ids": ["{video_id}"]}`,
			"/video.v1.EngagementService/ListEngagements":  `{"user_id": "{user_id}"}`,
			"/video.v1.EngagementService/PutEngagement":    `{"user_id": "{user_id}", "video_id": "{video_id}"}`,
			"/video.v1.EngagementService/DeleteEngagement": `{"user_id": "{user_id}", "video_id": "{video_id}"}`,

			"/video.v1.ReconcileService/DigestRows":         `{"definition": ` + definitionOfVideos + `, "from": "{video_id}"}`,
			"/video.v1.ReconcileService/ListRowDigests":     `{"definition": ` + definitionOfVideos + `, "from": "{video_id}", "until": "` + uuid.Max.String() + `"}`,
			"/video.v1.ReconcileService/ListVideoRows":      `{}`,
			"/video.v1.ReconcileService/ListEngagementRows": `{}`,
		},
		Values: func() map[string]string {
			v := a.liked()
			return map[string]string{"id": v.ID.String(), "video_id": v.ID.String(), "user_id": owner.User.String()}
		},
	}.Run(t)
	authtest.CheckTable(t, "../../docs/security.md", "video", table)
}

const definitionOfVideos = `{"aggregate_type": "video", "encoding": 1, "fields": ["title"]}`
