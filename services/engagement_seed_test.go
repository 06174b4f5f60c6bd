package services_test

import (
	"fmt"
	"net/http"
	"testing"

	goclient "example.com/lockstep/pkg/client"
	"example.com/lockstep/pkg/eventing/reconcile"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

// seesItsEngagement: a user of the Go client finds a like in the list of catalog at once.
func seesItsEngagement(t *testing.T, c *goclient.Client, user, video string) {
	t.Helper()
	if _, err := c.Engagements.PutEngagement(t.Context(), &videov1.PutEngagementRequest{UserId: user, VideoId: video, Liked: true}); err != nil {
		t.Fatal(err)
	}
	likes, err := c.Catalog.ListUserEngagements(t.Context(), &catalogv1.ListUserEngagementsRequest{UserId: user})
	if err != nil || len(likes.GetEngagements()) != 1 || !likes.GetEngagements()[0].GetLiked() {
		t.Errorf("the list after the like: %v, %v", likes, err)
	}
}

// recordEngagements does what recordVersions does of videos. An engagement's id is that of its events.
const recordEngagements = `
	CREATE TRIGGER record_version AFTER INSERT OR UPDATE ON catalog.video_user_engagements_projection
		FOR EACH ROW EXECUTE FUNCTION record_version()`

const (
	seedEngagements = `
		INSERT INTO video.engagements (user_id, video_id, liked, bookmarked, watched_seconds, version, created_at, updated_at, deleted_at, last_event_id)
		SELECT ('00000000-0000-4000-8000-' || lpad((n / 20)::text, 12, '0'))::uuid, gen_random_uuid(), n %% 3 > 0 AND n %% 2 = 0, n %% 3 = 1, CASE WHEN n %% 3 > 0 THEN n ELSE 0 END, 1 + n %% 5,
		       now() - interval '2 h', now() - interval '1 h', CASE n %% 3 WHEN 0 THEN now() - interval '1 h' END, gen_random_uuid()
		  FROM generate_series(1, %d) AS n`
	copyEngagements = `
		INSERT INTO catalog.video_user_engagements_projection (user_id, video_id, liked, bookmarked, watched_seconds, version, created_at, updated_at, deleted_at, last_event_id)
		SELECT user_id, video_id, liked, bookmarked, watched_seconds, version, CASE WHEN deleted_at IS NULL THEN created_at END, updated_at, deleted_at, last_event_id
		  FROM video.engagements`
)

var engagementRows = replicated{
	kind: "engagement", name: "catalog.video_user_engagements_projection", id: "user_id || ':' || video_id",
	faults: []fault{
		{reconcile.Changed, false, `UPDATE %s SET liked = NOT liked`},
		{reconcile.Changed, false, `UPDATE %s SET watched_seconds = watched_seconds + 1`},
		{reconcile.Changed, false, `UPDATE %s SET deleted_at = now()`},
		{reconcile.Changed, false, `UPDATE %s SET created_at = NULL`},
		{reconcile.Changed, false, `UPDATE %s SET last_event_id = gen_random_uuid()`},
		{reconcile.Changed, false, `UPDATE %s SET updated_at = now() + interval '1 year'`},
		{reconcile.Changed, true, `UPDATE %s SET deleted_at = NULL`},
		{reconcile.Missing, false, `DELETE FROM %s`},
		{reconcile.Missing, true, `DELETE FROM %s`},
		{reconcile.Ahead, false, `UPDATE %s SET version = version + 9, deleted_at = now()`},
		{reconcile.Behind, false, `UPDATE %s SET version = version - 1, liked = NOT liked`},
	},
	extra: `INSERT INTO catalog.video_user_engagements_projection (user_id, video_id, version, created_at, updated_at)
		SELECT gen_random_uuid(), gen_random_uuid(), n, now() - interval '1 h', now() - interval '1 h' FROM generate_series(1, $1::int) AS n RETURNING %s`,
}

// seesItsEngagement: a member of a tenant finds a like in its list.
func (m member) seesItsEngagement(t *testing.T, v answer) {
	t.Helper()
	const list = "/users/%s/engagements"
	liked := "http://" + m.videoAddr + "/v1" + fmt.Sprintf(list, m.user) + "/" + v.ID
	e := m.call(t, http.MethodPut, liked, fields{"liked": true}).is(t, http.StatusOK, 1)
	engaged := m.call(t, http.MethodGet, m.copies(fmt.Sprintf(list, m.user)), nil, "Consistency-Token", e.Token, "Prefer", "wait=10")
	if len(engaged.Engagements) != 1 || engaged.Engagements[0].VideoID != v.ID {
		t.Errorf("%s lists the engagements %+v, want that with %s", m.tenant, engaged.Engagements, v.ID)
	}
}
