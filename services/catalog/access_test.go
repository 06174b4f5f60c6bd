package catalog

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/internal/authtest"
	"example.com/lockstep/pkg/eventing/inbox"
)

// Each route and RPC that is registered, with each kind of identity. A new one fails here
// until it has a rule and a request.
func TestAccess(t *testing.T) {
	t.Parallel()
	issuers := authtest.New(t)
	f := setUp(t)
	addr, server := f.listenFor(t, issuers.Callers)
	operations, err := server.Operations()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	id := newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "t"), like{authtest.Owner, id}.put(1))
	table := authtest.Matrix{
		Issuers: issuers, Rules: access, Operations: operations, URL: "http://" + addr, Conn: conn,
		Shared: []string{
			"GET /v1/videos", "GET /v1/videos/{id}",
			"/catalog.v1.CatalogService/GetVideo", "/catalog.v1.CatalogService/ListVideos",
		},
		Bodies: map[string]string{
			"/catalog.v1.CatalogService/GetVideo":            `{"video_id": "{id}"}`,
			"/catalog.v1.CatalogService/ListVideos":          `{}`,
			"/catalog.v1.CatalogService/ListUserEngagements": `{"user_id": "{user_id}"}`,
		},
		Values: func() map[string]string {
			return map[string]string{"id": id.String(), "user_id": authtest.Owner.String()}
		},
	}.Run(t)
	authtest.CheckTable(t, "../../docs/security.md", "catalog", table)
}
