package backlog

import (
	"testing"

	"example.com/lockstep/internal/pgtest"
)

// More events are parked than a List sorts. It returns the events that were parked first, wherever their rows are.
func TestAListOfManyParkedEventsHasTheFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.backlog.counted = 100
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at, parked_at, last_error)
		SELECT gen_random_uuid(), 'video', v::text, 'VideoUpdated', 1, '', now() - v * interval '1 minute', now() - v * interval '1 second', 'refused'
		  FROM generate_series(1, 3000) v`)
	pgtest.Exec(t, b.pg.Pool(t, b.pg.Admin), `ANALYZE app.outbox`)
	for _, f := range []Filter{{Parked: true}, {Parked: true, Reason: "refused"}} {
		events, err := b.backlog.List(t.Context(), f, 1)
		if err != nil || len(events) != 1 || events[0].AggregateID != "3000" {
			t.Errorf("%+v: %+v, %v; want the event that was parked first", f, events, err)
		}
	}
}

// A person may have written the retry time infinity. The event is listed and shown, without that time.
func TestAnInfiniteRetryTimeIsListed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.append(t, "a", 1)[0]
	for _, at := range []string{"infinity", "-infinity"} {
		b.exec(t, `UPDATE outbox SET next_retry_at = $1::text::timestamptz`, at)
		if events, err := b.backlog.List(t.Context(), Filter{}, 10); err != nil || len(events) != 1 || events[0].NextRetryAt != nil {
			t.Errorf("list with %s: %+v, %v", at, events, err)
		}
		if shown, err := b.backlog.Show(t.Context(), id); err != nil || shown.Event == nil || shown.Event.NextRetryAt != nil {
			t.Errorf("show with %s: %+v, %v", at, shown, err)
		}
	}
}
