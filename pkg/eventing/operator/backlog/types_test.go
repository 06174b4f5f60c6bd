package backlog

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// Two aggregates of different types may have the same id. What an operator sees and does of one leaves the other one out.
func TestTypesShareNoIDs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	add := func(kind string, version int64, set string) (id uuid.UUID) {
		t.Helper()
		id = uuid.New()
		b.exec(t, `
			INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at)
			VALUES ($1, $2, 'a', 'Changed', $3, 'content', now())`, id, kind, version)
		b.exec(t, `UPDATE outbox SET `+set+` WHERE id = $1`, id)
		return id
	}
	const (
		published = `published_at = now() - interval '8 days'`
		parked    = `parked_at = now() - interval '1 hour', last_error = 'no field 7'`
		pending   = `published_at = NULL`
	)
	add("order", 1, published)
	add("order", 2, published)
	refused := add("order", 3, parked)
	add("order", 4, pending)
	add("video", 1, published)
	add("user", 3, published)
	add("user", 4, published)
	add("user", 5, pending)

	events, err := b.backlog.List(t.Context(), Filter{}, 10)
	states := map[string]string{}
	for _, e := range events {
		states[fmt.Sprint(e.AggregateType, e.Version)] = e.State
	}
	if diff := cmp.Diff(map[string]string{"order3": "parked", "order4": "blocked", "user5": "pending"}, states); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	s, err := b.backlog.Status(t.Context())
	if err != nil || s.Blocked != 1 || len(s.ByAggregate) != 1 || s.ByAggregate[0].Blocked != 1 || s.OldestAge == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	b.exec(t, `DELETE FROM outbox WHERE aggregate_type = 'order' AND version = 4`)
	if p, err := b.backlog.PlanSkip(t.Context(), refused); err != nil || !p.Newest || p.Blocked != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	// The newest published event of each stays.
	if n, err := b.backlog.Purge(t.Context(), order, 7*24*time.Hour); err != nil || n != 2 {
		t.Errorf("%d are purged, %v; want version 1 of the order, and version 3 of the user", n, err)
	}
	if c, err := b.backlog.Contents(t.Context(), "order", []string{"a"}); err != nil || c != (Contents{Published: 1, Waiting: 1}) {
		t.Errorf("%+v, %v", c, err)
	}
	for _, kind := range []string{"order", "video"} {
		if waiting, err := b.backlog.Forget(t.Context(), kind, []string{"a"}); err != nil || (waiting == 1) != (kind == "order") {
			t.Errorf("%d of %s wait, %v; want the parked order alone", waiting, kind, err)
		}
		if n := b.count(t, `SELECT count(*) FROM outbox WHERE aggregate_type = 'video' AND payload <> ''`); (n == 1) != (kind == "order") {
			t.Errorf("after %s: %d videos have a payload", kind, n)
		}
	}
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE aggregate_type = 'video'`); n != 1 {
		t.Error("the newest event of the video has gone")
	}
}

// An event before a parked one is not blocked by it.
func TestAnEventBeforeAParkedOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := b.append(t, "a", 3)
	b.park(t, ids[1], "no field 7")
	if d, err := b.backlog.Show(t.Context(), ids[0]); err != nil || d.Event.State != "pending" {
		t.Errorf("%+v, %v", d.Event, err)
	}
	if s, err := b.backlog.Status(t.Context()); err != nil || s.Blocked != 1 || s.ByAggregate[0].Blocked != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	now, err := b.backlog.Moment(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if yes, err := b.backlog.Sendable(t.Context(), now); err != nil || !yes {
		t.Errorf("sendable = %t, %v", yes, err)
	}
}
