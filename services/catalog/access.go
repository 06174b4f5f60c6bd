package catalog

import "example.com/lockstep/internal/auth"

// access are the rules of access of all routes and RPCs. They say which kinds of callers get in.
// That a user's engagements are for this user is the rule of [Service.ListEngagements].
var access = auth.Rules{
	"GET /openapi.json": auth.Public,

	"GET /v1/videos":                      auth.SignedIn,
	"GET /v1/videos/{id}":                 auth.SignedIn,
	"GET /v1/users/{user_id}/engagements": auth.Users,

	"/catalog.v1.CatalogService/GetVideo":            auth.SignedIn,
	"/catalog.v1.CatalogService/ListVideos":          auth.SignedIn,
	"/catalog.v1.CatalogService/ListUserEngagements": auth.Users,
}
