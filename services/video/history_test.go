package video

import (
	"testing"

	"github.com/google/uuid"

	videov1 "example.com/lockstep/proto/video/v1"
)

// Each event names the one before it, and the row names the last one. The answer to a
// copy's question has that event's id and the time of the answer.
func TestEachVersionNamesTheEventBefore(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	a.call("PATCH", path(v), `{"title": "second"}`)
	a.call("PATCH", path(v), `{"title": "second"}`) // changes nothing
	a.call("DELETE", path(v), nil)
	last := a.chained(v.ID.String(), 3)
	resp := a.videoRows(v.ID.String())
	row := only(t, resp.GetVideos())
	known := resp.GetAsOf().IsValid() && !resp.GetAsOf().AsTime().Before(row.GetUpdatedAt().AsTime())
	if said := row.GetLastEventId(); said != last || !known {
		t.Errorf("it was last made by %q as of a known time: %v; want %s", said, known, last)
	}
}

// chained fails the test unless each of an aggregate's events names the one before. It returns
// the last one.
func (a *api) chained(id string, versions int) string {
	a.Helper()
	rows, err := a.db.Query(a.Context(), `SELECT id, previous_event_id FROM outbox WHERE aggregate_id = $1 ORDER BY version`, id)
	if err != nil {
		a.Fatal(err)
	}
	var last uuid.NullUUID
	n := 0
	for ; rows.Next(); n++ {
		var event uuid.UUID
		var previous uuid.NullUUID
		if err := rows.Scan(&event, &previous); err != nil {
			a.Fatal(err)
		}
		if previous != last {
			a.Errorf("event %d of %s follows %v, want %v", n+1, id, previous, last)
		}
		last = uuid.NullUUID{UUID: event, Valid: true}
	}
	if n != versions {
		a.Errorf("%d events of %s, want %d", n, id, versions)
	}
	return last.UUID.String()
}

// A row that was written by a release without event ids: its next event names no
// predecessor.
func TestRowWithoutEventIDNamesNoPredecessor(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	a.exec(`UPDATE video.videos SET version = 2, updated_at = clock_timestamp()`)
	resp, err := a.rpc.GetVideo(t.Context(), &videov1.GetVideoRequest{VideoId: v.ID.String()})
	if err != nil || resp.GetVideo().GetLastEventId() != "" {
		t.Errorf("%v, %v; want no event named", resp, err)
	}
	a.call("PATCH", path(v), `{"title": "second"}`)
	var named int
	err = a.db.QueryRow(t.Context(), `SELECT count(*) FROM outbox WHERE version = 3 AND previous_event_id IS NOT NULL`).Scan(&named)
	if err != nil || named != 0 {
		t.Errorf("%d events name an unknown event, %v", named, err)
	}
}
