package catalog

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/internal/auth"
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
	f.must(t, inbox.Applied, createdEvent(id, 1, "t"))
	f.engaged(t, authtest.Owner, id)
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
			return map[string]string{
				"id": id.String(), "user_id": authtest.Owner.String(),
			}
		},
	}.Run(t)
	authtest.CheckTable(t, "../../docs/security.md", "catalog", table)
}

// The document asks for a token where the rules do, and knows the refusals.
func TestDocumentHasTheRules(t *testing.T) {
	t.Parallel()
	issuers := authtest.New(t)
	f := setUp(t)
	addr, _ := f.listenFor(t, issuers.Callers)
	doc, _ := document(t)
	for route, item := range doc["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			line := strings.ToUpper(method) + " " + route
			security, given := dig(item, method, "security").([]any)
			open := given && len(security) == 0
			rule := access[line]
			if public := rule == auth.Public || rule == auth.Closed; open != public { // Closed: internal/serve's own
				t.Errorf("%s: security is %v, the rule %v", line, security, rule)
			}
			unauthenticated, denied := dig(item, method, "responses", "401"), dig(item, method, "responses", "403")
			if (unauthenticated == nil) != open || (denied != nil) != (rule == auth.Users) {
				t.Errorf("%s: 401 is %v and 403 %v, the rule %v", line, unauthenticated, denied, rule)
			}
			if (dig(item, method, "responses", "429") == nil) != open {
				t.Errorf("%s: 429 is not as the rule %v wants it", line, rule)
			}
			if open {
				continue
			}
			line = strings.NewReplacer("{id}", newVideoID().String(), "{user_id}", authtest.Owner.String()).Replace(line)
			if r := call(t, addr, line); r.status != 401 {
				t.Errorf("%s without a token: %d", line, r.status)
			}
			token := "Authorization: " + issuers.Header("other user").Get("Authorization")
			if r := call(t, addr, line, token); denied != nil && r.status != 403 {
				t.Errorf("%s by another user: %d", line, r.status)
			}
		}
	}
}
