package services_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"example.com/lockstep/internal/local/broker"
)

// TestPubSubIsReachedInItsRegion runs both services without a local broker, on a
// network without any destination, and checks the address that they try to reach. The
// order of a key holds within one region only, so it must be the configured one. The calls
// that fail leave no series of Pub/Sub's library, which would name each address of Google's.
func TestPubSubIsReachedInItsRegion(t *testing.T) {
	t.Parallel()
	const regional, global = "europe-west1-pubsub.googleapis.com:443", "pubsub.googleapis.com:443"
	for endpoint, where := range map[string]struct{ wanted, not string }{regional: {regional, global}, "": {global, regional}} {
		t.Run("endpoint "+endpoint, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, startBroker(t, broker.Local))
			outside := *w
			outside.broker = &testBroker{} // without an address to configure
			credentials := filepath.Join(t.TempDir(), "credentials.json")
			text := `{"type": "authorized_user", "client_id": "c", "client_secret": "none", "refresh_token": "none"}`
			if err := os.WriteFile(credentials, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			env := func(r *routes) []string {
				// Without an emulator the process is not local, and needs an issuer or this.
				return []string{"EVERYBODY_MAY_WRITE=true", "PUBSUB_ENDPOINT=" + endpoint, "GOOGLE_APPLICATION_CREDENTIALS=" + credentials, "HTTPS_PROXY=" + r.url}
			}
			publisher, subscriber := newRoutes(t), newRoutes(t)
			owner := outside.spawn(t, "video", w.videoAddr, append(env(publisher), "DATABASE_URL="+w.pg.VideoURL)...)
			owner.ready(t)
			outside.spawn(t, "catalog", w.catalogAddr,
				append(env(subscriber), "DATABASE_URL="+w.pg.CatalogURL, "VIDEO_SERVICE_ADDR="+w.videoAddr)...).ready(t)
			w.create(t, "First cut")
			for who, r := range map[string]*routes{"video": publisher, "catalog": subscriber} {
				eventually(t, who+" wants to go to "+where.wanted, func() bool { return slices.Contains(r.wanted(), where.wanted) })
				if slices.Contains(r.wanted(), where.not) {
					t.Errorf("%s wants to go to %v", who, r.wanted())
				}
			}
			eventually(t, "a publish has failed", func() bool { return publishFailed.MatchString(metrics(t, w.videoAddr)) })
			for _, addr := range []string{w.videoAddr, w.catalogAddr} {
				if strings.Contains(metrics(t, addr), "google.pubsub") {
					t.Errorf("%s shows series of Pub/Sub's library", addr)
				}
			}
			const warning = "set PUBSUB_ENDPOINT"
			if warned := strings.Contains(owner.child.Output(), warning); warned != (endpoint == "") {
				t.Errorf("endpoint %q, video warns: %v", endpoint, warned)
			}
		})
	}
}

var publishFailed = regexp.MustCompile(`(?m)^outbox_publish_failures_total\{.*kind="outage".*\} [1-9]`)

// routes is a proxy that refuses every connection and records the requested hosts.
type routes struct {
	url string

	mu    sync.Mutex
	hosts map[string]bool
}

func newRoutes(t testing.TB) *routes {
	t.Helper()
	r := &routes{hosts: map[string]bool{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *routes) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hosts[request.Host] = true
	http.Error(w, "no way to "+request.Host, http.StatusBadGateway)
}

func (r *routes) wanted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.hosts))
}
