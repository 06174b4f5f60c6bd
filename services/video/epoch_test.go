package video

import (
	"net/http"
	"testing"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/operator/backlog"
	videov1 "example.com/lockstep/proto/video/v1"
	"example.com/lockstep/services/video/aggregate"
)

// TestANewEpoch: an operator begins an epoch while the process runs. From then on each
// answer, event and read is of the new epoch, by whichever way the request goes: a new
// row, a change, a change of nothing, an answer from before, a read.
func TestANewEpoch(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	epochOf := func(r reply) int64 {
		t.Helper()
		token, err := consistency.Parse(r.Header.Get("Consistency-Token"))
		if err != nil || len(token.Positions) != 1 {
			t.Fatalf("%d %s: token %+v, %v", r.Status, r.Raw, token, err)
		}
		return token.Positions[0].Epoch
	}
	first := draft(nil)
	created := a.call("POST", "/v1/videos", first, "Idempotency-Key", "first")
	video := created.Header.Get("Location")
	engagement := a.likedIn(1, created.field("video_id"))
	if epochOf(created) != 1 {
		t.Errorf("epoch %d, want 1", epochOf(created))
	}
	begin := func() int64 {
		t.Helper()
		epoch, err := backlog.New(a.db).BeginEpoch(t.Context(), audit.Actor{By: "ada"})
		if err != nil {
			t.Fatal(err)
		}
		return epoch.Epoch
	}
	for _, write := range []struct {
		name, method, path string
		body               any
		headers            []string
		status, events     int
	}{
		{"a new video", "POST", "/v1/videos", draft(nil), nil, http.StatusCreated, 1},
		{"a change", "PATCH", video, `{"title": "b"}`, nil, http.StatusOK, 1},
		{"a change of nothing", "PATCH", video, `{"title": "b"}`, nil, http.StatusOK, 0},
		{"an answer from before", "POST", "/v1/videos", first, []string{"Idempotency-Key", "first"}, http.StatusCreated, 0},
		{"of no video", "PUT", newEngagement(""), `{}`, nil, http.StatusNotFound, 0},
		{"a new engagement", "PUT", newEngagement(created.field("video_id")), `{}`, nil, http.StatusOK, 1},
		{"an engagement", "PUT", engagement, `{"bookmarked": true}`, nil, http.StatusOK, 1},
		{"an engagement as it is", "PUT", engagement, `{"bookmarked": true}`, nil, http.StatusOK, 0},
		{"the end of an engagement", "DELETE", engagement, nil, nil, http.StatusOK, 1},
		{"the end of a video", "DELETE", video, nil, nil, http.StatusOK, 1},
	} {
		epoch := begin()
		r := a.call(write.method, write.path, write.body, write.headers...)
		if r.Status != write.status {
			t.Errorf("%s: %d %s", write.name, r.Status, r.Raw)
		}
		if r.Status < http.StatusBadRequest && epochOf(r) != epoch {
			t.Errorf("%s: epoch %d, want %d", write.name, epochOf(r), epoch)
		}
		var events int
		if err := a.db.QueryRow(t.Context(), `SELECT count(*) FROM outbox WHERE epoch = $1`, epoch).Scan(&events); err != nil || events != write.events {
			t.Errorf("%s: %d events of the new epoch, %v; want %d", write.name, events, err, write.events)
		}
	}
	epoch := begin()
	read := a.videoRows(created.field("video_id"))
	if read.GetEpoch() != epoch || only(t, read.GetVideos()).GetEpoch() != epoch {
		t.Errorf("%v; want epoch %d", read, epoch)
	}
	listed, err := a.rpc.ListVideos(t.Context(), &videov1.ListVideosRequest{})
	if err != nil || len(listed.GetVideos()) == 0 || listed.GetVideos()[0].GetEpoch() != epoch {
		t.Errorf("%v, %v; want epoch %d", listed, err, epoch)
	}
}

// A change of nothing waits for the row while an operator begins an epoch. The answer is of the new
// epoch: a token of the old one would count as reached by any row of the new one.
func TestAChangeOfNothingThatWaitsForAnEpoch(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	tx := pgtest.Begin(t, a.admin)
	defer func() { _ = tx.Rollback(t.Context()) }()
	pgtest.Exec(t, tx, `UPDATE video.videos SET title = 'b', version = 2 WHERE video_id = $1`, v.ID)
	answered := make(chan Video, 1)
	go func() {
		r, err := a.service.Update(t.Context(), v.ID, []string{"title"}, Video{Title: "b"}, aggregate.WriteOptions{Caller: everyone}, nil)
		if err != nil {
			t.Error(err)
		}
		answered <- r.Value
	}()
	pgtest.Until(a, "the change waits", func() bool {
		var waits bool
		err := a.admin.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database())`).Scan(&waits)
		return err == nil && waits
	})
	epoch, err := backlog.New(a.db).BeginEpoch(t.Context(), audit.Actor{By: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	pgtest.End(t, tx.Commit)
	if v := <-answered; v.Version != 2 || v.Epoch != epoch.Epoch {
		t.Errorf("version %d in epoch %d, want 2 in %d", v.Version, v.Epoch, epoch.Epoch)
	}
}
