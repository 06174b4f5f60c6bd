package video

import "example.com/lockstep/internal/auth"

// access are the rules of access of all routes and RPCs. They say which kinds of callers get
// in. Which rows a user may read and change is decided where the row is known:
// [aggregate.CheckOwner].
var access = auth.Rules{
	"GET /openapi.json": auth.Public,

	"POST /v1/videos":        auth.Users,
	"GET /v1/videos":         auth.SignedIn,
	"GET /v1/videos/{id}":    auth.SignedIn,
	"PATCH /v1/videos/{id}":  auth.Users,
	"DELETE /v1/videos/{id}": auth.Users,

	"PUT /v1/users/{user_id}/engagements/{video_id}":    auth.Users,
	"DELETE /v1/users/{user_id}/engagements/{video_id}": auth.Users,

	"/video.v1.VideoService/CreateVideo": auth.Users,
	"/video.v1.VideoService/GetVideo":    auth.SignedIn,
	"/video.v1.VideoService/GetVideos":   auth.SignedIn,
	"/video.v1.VideoService/ListVideos":  auth.SignedIn,
	"/video.v1.VideoService/UpdateVideo": auth.Users,
	"/video.v1.VideoService/DeleteVideo": auth.Users,

	// Read models of engagements read their owner's rows here.
	"/video.v1.EngagementService/GetEngagement":    auth.SignedIn,
	"/video.v1.EngagementService/GetEngagements":   auth.SignedIn,
	"/video.v1.EngagementService/ListEngagements":  auth.SignedIn,
	"/video.v1.EngagementService/PutEngagement":    auth.Users,
	"/video.v1.EngagementService/DeleteEngagement": auth.Users,

	"/video.v1.ReconcileService/DigestRows":         auth.Services,
	"/video.v1.ReconcileService/ListRowDigests":     auth.Services,
	"/video.v1.ReconcileService/ListVideoRows":      auth.Services,
	"/video.v1.ReconcileService/ListEngagementRows": auth.Services,
}
