package video

import "example.com/lockstep/internal/auth"

// access has the access rules of all routes and RPCs. A rule says which kinds of callers are
// allowed. Rules do not decide about rows. [aggregate.CheckOwner] checks whether a caller may act
// for the user that a row belongs to.
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
	"/video.v1.VideoService/ListVideos":  auth.SignedIn,
	"/video.v1.VideoService/UpdateVideo": auth.Users,
	"/video.v1.VideoService/DeleteVideo": auth.Users,

	"/video.v1.EngagementService/GetEngagement":    auth.Users,
	"/video.v1.EngagementService/ListEngagements":  auth.Users,
	"/video.v1.EngagementService/PutEngagement":    auth.Users,
	"/video.v1.EngagementService/DeleteEngagement": auth.Users,

	// These RPCs return rows of all users, or digests of such rows, including tombstones.
	"/video.replication.v1.ReplicationService/GetVideoRows":       auth.Services,
	"/video.replication.v1.ReplicationService/GetEngagementRows":  auth.Services,
	"/video.replication.v1.ReplicationService/ListVideoRows":      auth.Services,
	"/video.replication.v1.ReplicationService/ListEngagementRows": auth.Services,
	"/video.replication.v1.ReplicationService/DigestRows":         auth.Services,
	"/video.replication.v1.ReplicationService/ListRowDigests":     auth.Services,
}
