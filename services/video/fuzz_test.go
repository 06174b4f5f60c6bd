package video

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"

	"example.com/lockstep/internal/attack"
)

func FuzzHTTP(f *testing.F) {
	a := newAPI(f)
	attack.HTTP(f, a.routes.(*chi.Mux), a.living(),
		"/v1/videos", "/v1/videos/"+attack.Placeholder,
		"/v1/users/"+attack.Placeholder+"/engagements/"+attack.Placeholder,
		"/openapi.json", "/readyz", "/a")
}

func FuzzRPC(f *testing.F) {
	a := newAPI(f)
	attack.RPC(f, a.conn, a.living())
}

// living returns the id of a video, of another one when that has been deleted.
func (a *api) living() func(*testing.T) string {
	var v Video
	return func(t *testing.T) string {
		t.Helper()
		b := *a
		b.TB = t
		if b.call("GET", path(v), nil).Status != http.StatusOK {
			v = b.create()
		}
		return v.ID.String()
	}
}
