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
	v, user := a.create(), uuid.New()
	a.call("PATCH", path(v), `{"title": "second"}`)
	a.call("PATCH", path(v), `{"title": "second"}`) // changes nothing
	a.call("PUT", engaged(user, v), `{"liked": true}`)
	a.call("PUT", engaged(user, v), `{"liked": false}`)
	a.call("DELETE", engaged(user, v), nil)
	a.call("PUT", engaged(user, v), `{"liked": true}`)
	a.call("DELETE", path(v), nil)
	for id, versions := range map[string]int{v.ID.String(): 3, user.String() + ":" + v.ID.String(): 4} {
		rows, err := a.db.Query(t.Context(), `SELECT id, previous_event_id FROM outbox WHERE aggregate_id = $1 ORDER BY version`, id)
		if err != nil {
			t.Fatal(err)
		}
		var last uuid.NullUUID
		n := 0
		for ; rows.Next(); n++ {
			var event uuid.UUID
			var previous uuid.NullUUID
			if err := rows.Scan(&event, &previous); err != nil {
				t.Fatal(err)
			}
			if previous != last {
				t.Errorf("event %d of %s follows %v, want %v", n+1, id, previous, last)
			}
			last = uuid.NullUUID{UUID: event, Valid: true}
		}
		if n != versions {
			t.Errorf("%d events of %s, want %d", n, id, versions)
		}
		var said string
		var asOf bool
		if id == v.ID.String() {
			resp := a.videoRows(id)
			row := only(t, resp.GetVideos())
			said, asOf = row.GetLastEventId(), resp.GetAsOf().IsValid() && !resp.GetAsOf().AsTime().Before(row.GetUpdatedAt().AsTime())
		} else {
			resp, err := a.engage.GetEngagement(t.Context(), &videov1.GetEngagementRequest{UserId: user.String(), VideoId: v.ID.String()})
			if err != nil {
				t.Fatal(err)
			}
			said, asOf = resp.GetEngagement().GetLastEventId(), resp.GetAsOf().IsValid()
		}
		if said != last.UUID.String() || !asOf {
			t.Errorf("%s was last made by %q as of a known time: %v; want %s", id, said, asOf, last.UUID)
		}
	}
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
