package catalog

import "example.com/lockstep/internal/auth"

// access has the rules of access of all routes and RPCs. They say which kinds of callers are allowed.
// [Service.ListEngagements] checks whether a caller may read a user's engagements.
var access = auth.Rules{
	"GET /openapi.json": auth.Public,

	"GET /v1/videos":                      auth.SignedIn,
	"GET /v1/videos/{id}":                 auth.SignedIn,
	"GET /v1/users/{user_id}/engagements": auth.Users,

	"/catalog.v1.CatalogService/GetVideo":            auth.SignedIn,
	"/catalog.v1.CatalogService/ListVideos":          auth.SignedIn,
	"/catalog.v1.CatalogService/ListUserEngagements": auth.Users,
}
