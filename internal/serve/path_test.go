package serve_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"

	"example.com/lockstep/internal/auth"
)

// TestEquivalentPaths: the spellings of a path that RFC 3986, section 6.2.2, calls equivalent have one answer, and one rule of access.
func TestEquivalentPaths(t *testing.T) {
	t.Parallel()
	s := newService(io.Discard)
	s.rules["GET /v1/videos/{id}"] = auth.Users
	s.rest.Get("/v1/videos/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s at %s", chi.URLParam(r, "id"), r.URL.EscapedPath())
	})
	for target, want := range map[string]string{
		"/v1/videos/a-b.c_d~1":           "a-b.c_d~1 at /v1/videos/a-b.c_d~1",
		"/v1/videos/a%2Db%2ec%5fd%7E%31": "a-b.c_d~1 at /v1/videos/a-b.c_d~1",
		"/%76%31/vide%6Fs/%61%2db.c_d~1": "a-b.c_d~1 at /v1/videos/a-b.c_d~1",
		"/v1/videos/%2E%2E":              ".. at /v1/videos/..",
		"/v1/videos/a%2Fb%2D":            "a%2Fb- at /v1/videos/a%2Fb-", // a slash within a name is none between names
		"/v1/videos/%252D-":              "%2D- at /v1/videos/%252D-",
		"/v1/videos/%252D%2D":            "%2D- at /v1/videos/%252D-", // decoded once
		"/v1/videos/%3A%2541%41":         "%3A%2541A at /v1/videos/%3A%2541A",
	} {
		if res := do(s, http.MethodGet, target, nil); res.Code != http.StatusOK || res.Body.String() != want {
			t.Errorf("%s: %d %s, want %s", target, res.Code, res.Body, want)
		}
	}
}
