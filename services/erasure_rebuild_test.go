package services_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// A rebuild takes deletions from the owner before their events arrive. These events then change nothing, and the copy of
// before still has the rows. An erasure deletes the rows in that copy, too.
func TestErasureInTheCopyOfARebuild(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	w.startVideo(t)
	stop := w.startCatalog(t)
	user, text := uuid.NewString(), "text"+strings.ReplaceAll(uuid.NewString(), "-", "")
	v := call(t, http.MethodPost, w.videos(""), nil, fields{"uploader_id": user, "title": text}).is(t, http.StatusCreated, 1)
	w.reaches(t, v)
	a := call(t, http.MethodPut, w.engagement(user, w.create(t, "of another user").ID), nil, fields{"liked": true, "watched_seconds": 61}).is(t, http.StatusOK, 1)
	w.freshEngagements(t, user, a.Token)
	stop()
	w.sh(t, o, `video erase --user `+user+` --yes --why test`)
	w.sh(t, o, `catalog rebuild run --disk-free "40 GB" --grace 1s --yes --why test`)
	if got := w.tablesWith(t, text); !slices.Equal(got, []string{"catalog.video_projection_shadow"}) {
		t.Fatalf("before the erasure %q have the text, want the copy of before", got)
	}
	w.startCatalog(t)
	eventually(t, "the deletions have arrived", func() bool {
		return query[int64](t, w, `SELECT count(*) FROM catalog.inbox WHERE event_type LIKE '%Deleted' AND status = 'done'`)[0] >= 1
	})
	out, err := o.shell(t, `catalog erase --user `+user, "NOTHING=").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "rows in the copy that a rebuild keeps: ") ||
		strings.Contains(string(out), "rows in the copy that a rebuild keeps: 0") {
		t.Errorf("the plan: %v %s", err, out)
	}
	w.sh(t, o, `catalog erase --user `+user+` --yes --why test`)
	if got := w.tablesWith(t, text); len(got) > 0 {
		t.Errorf("%q have the text", got)
	}
	for _, rows := range []string{
		`catalog.video_projection_shadow WHERE uploader_id = $1::uuid`,
		`catalog.video_user_engagements_projection_shadow WHERE user_id = $1::uuid AND (deleted_at IS NULL OR liked)`,
	} {
		if n := query[int64](t, w, `SELECT count(*) FROM `+rows, user)[0]; n > 0 {
			t.Errorf("%d rows: %s", n, rows)
		}
	}
	w.sh(t, o, `catalog rebuild rollback --yes --why test`)
	w.sh(t, o, `catalog reconcile --grace 1s`)
	w.sh(t, o, `catalog rebuild finish --yes --why test`)
}
