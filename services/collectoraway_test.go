package services_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/porttest"
)

// TestACollectorThatIsAway: services that send traces to nowhere serve on, say so in their logs
// in the form of all other lines, and end as asked. It is `docker compose up` with an endpoint
// and without the profile.
func TestACollectorThatIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, startBroker(t, broker.Local))
	nowhere := "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://" + porttest.Addr(t)
	const soon, often = "OTEL_EXPORTER_OTLP_TIMEOUT=500", "OTEL_BSP_SCHEDULE_DELAY=100"
	video := w.spawn(t, "video", w.videoAddr, "DATABASE_URL="+w.pg.VideoURL, nowhere, soon, often)
	catalog := w.spawn(t, "catalog", w.catalogAddr, "DATABASE_URL="+w.pg.CatalogURL, "VIDEO_SERVICE_ADDR="+w.videoAddr, nowhere, soon, often)
	for _, p := range []*spawned{video, catalog} {
		p.ready(t)
	}
	v := w.create(t, "First cut")
	w.read(t, v.ID, v.Token, 10).is(t, http.StatusOK, 1)
	for _, p := range []*spawned{video, catalog} {
		eventually(t, p.addr+" says that telemetry is not sent", func() bool {
			return strings.Contains(p.child.Output(), "telemetry is not sent")
		})
		if code := p.terminate(t); code != 0 {
			t.Errorf("%s ended with %d", p.addr, code)
		}
		for line := range strings.Lines(p.child.Output()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%s logged %q", p.addr, line)
			}
		}
	}
}
