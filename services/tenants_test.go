package services_test

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/local/issuer"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/pkg/eventing/consistency"
)

// member is a user of a tenant, who calls both services.
type member struct {
	*world

	tenant string
	user   uuid.UUID
	header http.Header
}

// withTenants has the world's services take the tokens of an issuer with tenants. It returns a
// way to make members.
func (w *world) withTenants(t *testing.T) func(tenant string, user uuid.UUID, roles ...string) member {
	t.Helper()
	lis := porttest.Listen(t)
	i, err := issuer.Start(lis)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { i.Close() })
	w.auth = auth.Config{Local: true, Issuer: i.URL(), Audience: issuer.Audience, TenantClaim: issuer.TenantClaim}
	return func(tenant string, user uuid.UUID, roles ...string) member {
		token, err := i.Mint(tenant, user, roles...)
		if err != nil {
			t.Fatal(err)
		}
		return member{w, tenant, user, http.Header{"Authorization": {"Bearer " + token}}}
	}
}

// call sends a request with more headers than the member's own. The services ask for the
// issuer's keys after their start: until they have them, the answer is 503.
func (m member) call(t *testing.T, method, address string, body fields, more ...string) (a answer) {
	t.Helper()
	header := maps.Clone(m.header)
	for pair := range slices.Chunk(more, 2) {
		header.Set(pair[0], pair[1])
	}
	eventually(t, method+" "+address+" is answered", func() bool {
		a = call(t, method, address, header, body)
		return a.code != http.StatusServiceUnavailable
	})
	return a
}

func (m member) copies(path string) string { return "http://" + m.catalogAddr + "/v1" + path }

// titles are those of a list that catalog or video answers.
func (m member) titles(t *testing.T, address string) (titles []string) {
	t.Helper()
	a := m.call(t, http.MethodGet, address, nil)
	if a.code != http.StatusOK {
		t.Fatalf("GET %s by %s: %d %s", address, m.tenant, a.code, a.Reason)
	}
	for _, v := range a.Videos {
		titles = append(titles, v.Title)
	}
	return titles
}

// TestTenantsAreApart has one user in two tenants, in one of them as an admin, and the same
// words, keys and ids in both. Neither sees, counts or changes anything of the other.
func TestTenantsAreApart(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	for name, pooled := range map[string]bool{"directly": false, "behind a transaction pooler": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, b)
			if pooled {
				w.pg.VideoURL, w.pg.CatalogURL = w.pg.Pooled(t, w.pg.VideoURL), w.pg.Pooled(t, w.pg.CatalogURL)
			}
			tenantsAreApart(t, w)
		})
	}
}

func tenantsAreApart(t *testing.T, w *world) {
	t.Helper()
	join := w.withTenants(t)
	w.startVideo(t)
	w.startCatalog(t)
	user := uuid.New()
	ada, bob := join("acme", user), join("bell", user, "admin")
	videos := map[string]answer{}
	for _, m := range []member{ada, bob} {
		body := fields{"uploader_id": user, "title": "shared words of " + m.tenant}
		v := m.call(t, http.MethodPost, w.videos(""), body, "Idempotency-Key", "one-key").is(t, http.StatusCreated, 1)
		again := m.call(t, http.MethodPost, w.videos(""), body, "Idempotency-Key", "one-key").is(t, http.StatusCreated, 1)
		if again.ID != v.ID {
			t.Errorf("%s: the retry made %s, the request %s", m.tenant, again.ID, v.ID)
		}
		m.seesItsEngagement(t, v)
		m.call(t, http.MethodGet, m.copies("/videos/"+v.ID), nil, "Consistency-Token", v.Token, "Prefer", "wait=10").is(t, http.StatusOK, 1)
		videos[m.tenant] = v
	}
	if videos["acme"].ID == videos["bell"].ID {
		t.Fatal("the second tenant got the first one's answer to the key")
	}
	for _, m := range []member{ada, bob} {
		m.seesItsOwn(t, videos[m.tenant])
	}
	ada.seesNothingOf(t, videos["bell"])
	bob.seesNothingOf(t, videos["acme"])
	w.keepsTenants(t)
	w.sh(t, w.operator(t), "video erase --user "+user.String()+" --yes --why test")
	for _, m := range []member{ada, bob} {
		if a := m.call(t, http.MethodGet, w.videos("/"+videos[m.tenant].ID), nil); a.code != http.StatusGone {
			t.Errorf("%s: an erased video: %+v, want 410", m.tenant, a)
		}
	}
	if n := query[int64](t, w, `SELECT count(*) FROM video.idempotency_keys`)[0]; n != 0 {
		t.Errorf("%d answers to the user are left", n)
	}
}

// seesItsOwn expects one video in each list.
func (m member) seesItsOwn(t *testing.T, v answer) {
	t.Helper()
	for _, query := range []string{"", "?q=shared", "?q=WORDS", "?uploader_id=" + m.user.String()} {
		if got := m.titles(t, m.copies("/videos"+query)); !slices.Equal(got, []string{v.Title}) {
			t.Errorf("%s lists %q with %q in catalog, want %q", m.tenant, got, query, v.Title)
		}
	}
	for _, query := range []string{"", "?uploader_id=" + m.user.String()} {
		if got := m.titles(t, m.videos(query)); !slices.Equal(got, []string{v.Title}) {
			t.Errorf("%s lists %q with %q in video, want %q", m.tenant, got, query, v.Title)
		}
	}
}

// seesNothingOf expects that a video of another tenant does not exist.
func (m member) seesNothingOf(t *testing.T, v answer) {
	t.Helper()
	engagement := "http://" + m.videoAddr + "/v1/users/" + m.user.String() + "/engagements/" + v.ID
	for _, tc := range []struct {
		method, address string
		body            fields
	}{
		{http.MethodGet, m.videos("/" + v.ID), nil},
		{http.MethodPatch, m.videos("/" + v.ID), fields{"title": "mine"}},
		{http.MethodDelete, m.videos("/" + v.ID), nil},
		{http.MethodPut, engagement, fields{"liked": true}},
		{http.MethodDelete, engagement, nil},
		{http.MethodGet, m.copies("/videos/" + v.ID), nil},
	} {
		if a := m.call(t, tc.method, tc.address, tc.body); a.code != http.StatusNotFound || a.ID != "" {
			t.Errorf("%s %s by %s: %+v, want 404", tc.method, tc.address, m.tenant, a)
		}
	}
	fully := m.call(t, http.MethodGet, m.copies("/videos/"+v.ID), nil, "Consistency", "fully-consistent")
	if fully.code != http.StatusNotFound {
		t.Errorf("the owner's answer for %s: %+v, want 404", m.tenant, fully)
	}
	m.learnsNothingOf(t, v)
	token := url.Values{"consistency_token": {v.Token}}.Encode()
	if a := m.call(t, http.MethodGet, m.copies("/videos?"+token), nil); a.code != http.StatusBadRequest {
		t.Errorf("a token of another tenant: %+v, want 400", a)
	}
}

// learnsNothingOf hands in tokens that the caller has written, of their own tenant and with
// positions of a video of another one. A token has no signature: the answers must be those to a
// video that never was.
func (m member) learnsNothingOf(t *testing.T, v answer) {
	t.Helper()
	reads := []struct{ address, kind, prefix string }{
		{m.copies("/videos"), "video", ""}, {m.copies("/videos?q=shared"), "video", ""}, {m.copies("/videos/{id}"), "video", ""},
		{m.copies("/users/" + m.user.String() + "/engagements"), "engagement", m.user.String() + ":"},
	}
	for _, version := range []int64{1, v.Version, 1 << 40} {
		for _, mode := range []string{"", "minimize-latency", "at-least-as-fresh;stale-if-error"} {
			for _, read := range reads {
				address := read.address
				var answers [2]answer
				for i, id := range []string{v.ID, uuid.NewString()} {
					at := consistency.Position{AggregateType: read.kind, AggregateID: read.prefix + id, Epoch: 1, Version: version}
					header := []string{"Consistency-Token", consistency.Token{Tenant: m.tenant, Positions: []consistency.Position{at}}.String(), "Prefer", "wait=0"}
					if mode != "" {
						header = append(header, "Consistency", mode)
					}
					a := m.call(t, http.MethodGet, strings.ReplaceAll(address, "{id}", id), nil, header...)
					a.header = nil
					for n := range a.Stale {
						a.Stale[n].ID = strings.ReplaceAll(a.Stale[n].ID, id, "")
					}
					answers[i] = a
				}
				if diff := cmp.Diff(answers[1], answers[0], cmp.AllowUnexported(answer{})); diff != "" {
					t.Errorf("%s with a token of version %d in mode %q (-no video +another tenant's):\n%s", address, version, mode, diff)
				}
			}
		}
	}
}

// keepsTenants checks the tenants of rows and events, and that a check of the read model finds
// and repairs a wrong one.
func (w *world) keepsTenants(t *testing.T) {
	t.Helper()
	const wrong = `
		SELECT (SELECT count(*) FROM video.outbox WHERE tenant_id NOT IN ('acme', 'bell')) +
		       (SELECT count(*) FROM video.idempotency_keys WHERE tenant_id NOT IN ('acme', 'bell')) +
		       (SELECT count(*) FROM video.videos AS o JOIN catalog.video_counters AS c USING (video_id) WHERE o.tenant_id <> c.tenant_id) +
		       (SELECT count(*) FROM video.engagements AS o JOIN catalog.video_user_engagements_projection AS p USING (user_id, video_id) WHERE o.tenant_id <> p.tenant_id) +
		       (SELECT count(*) FROM video.videos AS o JOIN catalog.video_projection AS p USING (video_id) WHERE o.tenant_id <> p.tenant_id)`
	count := func() (n int) {
		return pgtest.Value[int](t, w.db, wrong)
	}
	if n := count(); n != 0 {
		t.Errorf("%d rows are of a wrong tenant", n)
	}
	damages := []string{
		`UPDATE catalog.video_projection SET tenant_id = 'bell'`,
		`UPDATE catalog.video_user_engagements_projection SET tenant_id = 'bell'`,
		`UPDATE catalog.video_counters SET tenant_id = 'acme'`,
	}
	for _, damage := range damages {
		w.exec(t, damage)
	}
	if count() != len(damages) {
		t.Fatalf("%d rows are damaged, want %d", count(), len(damages))
	}
	if found := w.operator(t).reconcile(t, "--repair --yes --why test"); found.Code != 0 || count() != 0 {
		t.Errorf("after a repair %d rows are of a wrong tenant: %+v", count(), found)
	}
}
