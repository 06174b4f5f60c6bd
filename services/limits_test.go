package services_test

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/local/issuer"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/pkg/eventing"
)

// The flags of both services set the rate of each user, and the origins of pages.
func TestFlagsOfLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, startBroker(t, broker.Local))
	lis := porttest.Listen(t)
	users, err := issuer.Start(lis)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = users.Close() })
	token, err := users.Mint(eventing.DefaultTenant, uuid.New())
	if err != nil {
		t.Fatal(err)
	}
	if err := build(); err != nil {
		t.Fatal(err)
	}
	const app = "https://app.example"
	for command, url := range map[string]string{"video": w.pg.VideoURL, "catalog": w.pg.CatalogURL} {
		addr := map[string]string{"video": w.videoAddr, "catalog": w.catalogAddr}[command]
		cmd := exec.Command(filepath.Join(binaries, command), "serve", "-user-rate=1", "-cors-origin="+app)
		w.launch(t, cmd, addr, "DATABASE_URL="+url, "VIDEO_SERVICE_ADDR="+w.videoAddr,
			"AUTH_ISSUER="+users.URL(), "AUTH_AUDIENCE="+issuer.Audience).ready(t)
		ask := func() answer {
			header := http.Header{"Authorization": {"Bearer " + token}, "Origin": {app}}
			a, err := request(t.Context(), http.DefaultClient, http.MethodGet, "http://"+addr+"/v1/videos", header, nil)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		const most = 100 // fewer than the 200 that the default lets through at once
		a := ask()
		for n := 0; n < most && a.code == http.StatusOK; n++ {
			a = ask()
		}
		if a.code != http.StatusTooManyRequests || a.Reason != "RATE_EXCEEDED" || a.header.Get("Access-Control-Allow-Origin") != app {
			t.Errorf("%s: %d %s, %v", command, a.code, a.Reason, a.header)
		}
	}
}
