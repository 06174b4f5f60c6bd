package services_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/local/issuer"
	"example.com/lockstep/pkg/eventing"
)

// TestTypeScriptStory runs the story of clients/typescript against the pair, as a user with a
// token. LOCKSTEP_CLIENT is the folder of the compiled client; `make clients-check` sets it.
func TestTypeScriptStory(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("LOCKSTEP_CLIENT")
	if dir == "" {
		t.Skip("make clients-check compiles the client and runs this test")
	}
	w := newWorld(t, sharedBroker(t))
	tokens := startIssuer(t)
	w.auth.Issuer, w.auth.Audience = tokens.URL(), issuer.Audience
	w.startVideo(t)
	w.startCatalog(t)
	user := uuid.New()
	token, err := issuer.Ask(t.Context(), tokens.URL(), eventing.DefaultTenant, user)
	if err != nil {
		t.Fatal(err)
	}
	story := exec.CommandContext(t.Context(), "node", "story.js")
	story.Dir = dir
	story.Env = append(os.Environ(), "VIDEO_URL=http://"+w.videoAddr, "CATALOG_URL=http://"+w.catalogAddr,
		"USER_ID="+user.String(), "TOKEN="+token)
	out, err := story.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := `"versions":[1,2,3]`; !strings.Contains(string(out), want) {
		t.Errorf("the story ends with %s, want %s", out, want)
	}
}
