package services_test

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"example.com/lockstep/internal/canary"
	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/monitoring"
	"example.com/lockstep/internal/porttest"
)

var canarySeen = regexp.MustCompile(`(?m)^canary_visible_seconds_count\{.*\} (\d+)$`)

// TestCanary runs two instances of video with the canary, and one of catalog: each version
// becomes visible by the way of all events and is measured, one row is all that it leaves on
// either side, and no user meets it.
func TestCanary(t *testing.T) {
	t.Parallel()
	w := newWorld(t, startBroker(t, broker.Local))
	if err := build(); err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{w.videoAddr, porttest.Addr(t)} {
		serve := exec.Command(filepath.Join(binaries, "video"), "serve", "-canary-interval=1s")
		w.launch(t, serve, addr, "DATABASE_URL="+w.pg.VideoURL).ready(t)
	}
	w.spawnCatalog(t, w.catalogAddr).ready(t)
	eventually(t, "catalog has measured three versions", func() bool {
		m := canarySeen.FindStringSubmatch(metrics(t, w.catalogAddr))
		if m == nil {
			return false
		}
		seen, err := strconv.Atoi(m[1])
		return err == nil && seen >= 3
	})
	declared := func(m monitoring.Metric) bool { return m.Name == "canary.commits" }
	appears(t, w.videoAddr, declared)
	appears(t, w.catalogAddr, func(m monitoring.Metric) bool { return m.Name == "canary.visible" })

	const asOwned = `
		SELECT count(*) FROM video.videos v JOIN catalog.video_projection p USING (video_id, tenant_id, title, uploader_id)
		 WHERE v.version > 3 AND v.version = p.version AND v.tenant_id = $1`
	eventually(t, "the read model has the owner's canary", func() bool { return query[int64](t, w, asOwned, canary.Tenant)[0] == 1 })
	if n := query[int64](t, w, `SELECT count(*) FROM video.videos`)[0]; n != 1 {
		t.Errorf("%d videos, want the canary alone", n)
	}
	id := canary.Video.String()
	for _, url := range []string{w.videos(""), "http://" + w.catalogAddr + "/v1/videos", "http://" + w.catalogAddr + "/v1/videos?q=canary"} {
		if a := call(t, http.MethodGet, url, nil, nil); a.code != http.StatusOK || len(a.Videos) != 0 {
			t.Errorf("GET %s: %d %+v", url, a.code, a.Videos)
		}
	}
	for _, url := range []string{w.videos("/" + id), "http://" + w.catalogAddr + "/v1/videos/" + id} {
		call(t, http.MethodGet, url, nil, nil).is(t, http.StatusNotFound, 0)
	}
}
