package inbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
)

// An event is its id, aggregate and version together. In each status of the first event
// with an id, a second one neither takes its row nor counts as it, and ends in the dead
// letters, which name the first.
func TestAnEventIDThatIsUsedTwiceInEveryStatus(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, tc := range []struct {
		status string
		// settle brings the first event to the status.
		settle func(c *Consumer, first eventing.Event)
	}{
		{"done", func(c *Consumer, first eventing.Event) { c.finish(t, delivered(first)) }},
		{"held", func(c *Consumer, first eventing.Event) {
			if _, _, err := c.store.countAttempt(t.Context(), delivered(first), errors.New("not yet"), eventFault); err != nil {
				t.Fatal(err)
			}
		}},
		{"dead", func(c *Consumer, first eventing.Event) {
			if err := c.store.markDead(t.Context(), delivered(first), errors.New("hopeless")); err != nil {
				t.Fatal(err)
			}
		}},
		{"discarded", func(c *Consumer, first eventing.Event) {
			if err := c.store.markDead(t.Context(), delivered(first), errors.New("hopeless")); err != nil {
				t.Fatal(err)
			}
			pgtest.Exec(t, b.db, `UPDATE inbox SET status = 'discarded' WHERE event_id = $1`, first.ID)
		}},
		{"begun", func(c *Consumer, first eventing.Event) {
			if _, _, err := c.store.markStarted(t.Context(), []*delivery{delivered(first)}, maxLockWait); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		for where, differ := range map[string]func(e *eventing.Event){
			"aggregate": func(e *eventing.Event) { e.AggregateID = "z" + e.AggregateID },
			"type":      func(e *eventing.Event) { e.AggregateType = "ballad" },
			"version":   func(e *eventing.Event) { e.Version = 2 },
		} {
			t.Run(tc.status+" and another "+where, func(t *testing.T) {
				c := b.consumer(t)
				defer c.metrics.unregister()
				first := event(tc.status+" "+where, 1)
				second := first
				differ(&second)
				b.setOwner(second.AggregateID, second.Version) // so that it would continue if it counted as the first
				tc.settle(c, first)
				const row = `SELECT count(*) FROM inbox WHERE event_id = $1 AND aggregate_id = $2 AND version = 1 AND aggregate_type = 'video'
					AND status || begun || attempts || coalesce(last_error, '') = $3`
				var was string
				err := b.db.QueryRow(t.Context(), `SELECT status || begun || attempts || coalesce(last_error, '') FROM inbox WHERE event_id = $1`,
					first.ID).Scan(&was)
				if err != nil {
					t.Fatal(err)
				}
				for range 2 { // also when it comes again, and might be in a crash loop
					c.finish(t, c.again(second))
				}
				if n := b.count(t, row, first.ID, first.AggregateID, was); n != 1 {
					t.Errorf("the first one's row is no longer %q", was)
				}
				for _, dead := range b.deadLettered(first.ID.String()) {
					again, err := eventing.ParseMessage(dead.Data, dead.Attributes)
					if reason := dead.Attributes[AttrDeadLetterReason]; err != nil || again.Key() != second.Key() || again.Version != second.Version ||
						!strings.Contains(reason, "event_id") {
						t.Errorf("dead letter %v: %v", dead.Attributes, err)
					}
				}
				if n := len(b.deadLettered(first.ID.String())); n != 2 {
					t.Errorf("%d dead letters of the second one, want one for each delivery", n)
				}
				c.finish(t, delivered(first))
				if n := b.count(t, version, first.AggregateID); n != 1 {
					t.Errorf("the first one's effect: version %d", n)
				}
				if n := b.count(t, `SELECT count(*) FROM inbox WHERE event_id = $1 AND aggregate_id = $2 AND status = 'done'`,
					first.ID, first.AggregateID); n != 1 {
					t.Error("the first one is not done")
				}
			})
		}
	}
}

// Both events of one id may come in one batch, in either order of their aggregates.
// The first one's row is there already: the second one is neither a duplicate of it,
// nor applied in its place.
func TestBothEventsOfOneIDInABatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, done := range []bool{true, false} {
		for _, prefix := range []string{"a", "z"} {
			first := event(fmt.Sprint("m-", done, "-", prefix), 1)
			second := first
			second.AggregateID = prefix + first.AggregateID
			t.Run(second.AggregateID, func(t *testing.T) {
				c := b.consumer(t)
				defer c.metrics.unregister()
				if done {
					c.finish(t, delivered(first))
				} else if _, _, err := c.store.countAttempt(t.Context(), delivered(first), errors.New("not yet"), eventFault); err != nil {
					t.Fatal(err)
				}
				c.finish(t, delivered(second), delivered(first))
				if n := len(b.deadLettered(first.ID.String())); n != 1 {
					t.Errorf("%d dead letters, want the second event", n)
				}
				if v1, v2 := b.count(t, version, first.AggregateID), b.count(t, version, second.AggregateID); v1 != 1 || v2 != 0 {
					t.Errorf("versions %d and %d, want the first event's effect alone", v1, v2)
				}
				if n := b.count(t, withDone+` AND event_id = $1 AND aggregate_id = $2`, first.ID, first.AggregateID); n != 1 {
					t.Error("the first one is not done")
				}
			})
		}
	}
}

// Of two events with one id that come together, neither is taken for the other,
// whichever is first in the batch, and whether or not one has a row.
func TestAnEventIDThatIsUsedTwiceInOneBatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	defer c.metrics.unregister()
	for _, other := range []string{"a", "z"} {
		for status, settle := range map[string]func(first eventing.Event) error{
			"done":   func(first eventing.Event) error { c.finish(t, delivered(first)); return nil },
			"no row": func(eventing.Event) error { return nil },
			"waiting": func(first eventing.Event) error {
				return c.store.markDead(t.Context(), delivered(first), errors.New("redriven"))
			},
		} {
			t.Run(status+" before "+other, func(t *testing.T) {
				first := event("m "+status+other, 1)
				second := first
				second.AggregateID = other + status
				if err := settle(first); err != nil {
					t.Fatal(err)
				}
				c.finish(t, delivered(first), delivered(second))
				dead, effects := len(b.deadLettered(first.ID.String())), 0
				for _, e := range []eventing.Event{first, second} {
					effects += b.count(t, `SELECT count(*) FROM model WHERE id = $1`, e.AggregateID)
				}
				if dead != 1 || effects != 1 {
					t.Errorf("%d dead letters and %d effects of two events with one id, want one of each", dead, effects)
				}
			})
		}
	}
}
