package services_test

import (
	"net/http"
	"runtime"
	"testing"

	"example.com/lockstep/internal/local/broker"
)

// TestCatalogCallsAsItself runs catalog as on Cloud Run: video is behind TLS, and lets
// in only callers with an ID token for it. Nothing is published, so catalog has only
// the answers of its own calls.
func TestCatalogCallsAsItself(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux takes its trusted certificates from SSL_CERT_FILE")
	}
	w := newWorld(t, startBroker(t, broker.Local))
	w.recordVersions(t)
	muted := *w
	muted.project = "nowhere"
	muted.spawnVideo(t, w.videoAddr).ready(t)
	c := newCloud(t, w.videoAddr)
	c.mute.Store(true)
	copies := w.spawn(t, "catalog", w.catalogAddr, append(c.env, "DATABASE_URL="+w.pg.CatalogURL)...)
	copies.ready(t)

	v := w.create(t, "First cut")
	unknown := func() bool { return w.read(t, v.ID, v.Token, 0).code == http.StatusServiceUnavailable }
	known := func() bool { return w.read(t, v.ID, v.Token, 0).code == http.StatusOK }
	eventually(t, "catalog asks for a token, and does not know of the video", func() bool { return unknown() && c.asked.Load() > 0 })
	if n := c.admitted.Load() + c.turnedAway.Load(); n != 0 {
		t.Errorf("%d calls went out without a token", n)
	}
	if !ready(copies.addr) {
		t.Error("without the metadata server catalog is not ready")
	}
	c.mute.Store(false)
	eventually(t, "the owner answers", known)
	w.ofOwner(t, v.ID, v.Token).is(t, http.StatusOK, 1)

	c.revoked.Store(true)
	eventually(t, "the owner turns catalog away", unknown)
	if !ready(copies.addr) {
		t.Error("without the owner catalog is not ready")
	}
	c.revoked.Store(false)
	eventually(t, "the owner answers again", known)

	v = w.update(t, v, fields{"description": "only in version 2"})
	v = w.update(t, v, fields{"title": "only in version 3"})
	events := w.events(t, v.ID)
	w.publish(t, events[0].Message(), events[2].Message())
	if read := w.reaches(t, v); read.Title != "only in version 3" || read.Description != "only in version 2" {
		t.Errorf("read %+v, want the fields of both versions", read)
	}
	w.livedExactly(t, v.ID, 1, 3)
	if c.admitted.Load() < 3 || c.asked.Load() > 20 {
		t.Errorf("%d calls were let in, %d tokens asked for", c.admitted.Load(), c.asked.Load())
	}
}
