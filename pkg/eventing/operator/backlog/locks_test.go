package backlog

import (
	"context"
	"testing"

	"example.com/lockstep/internal/pgtest"
)

// Actions that wait for events lock these in one order. So of several actions at the same time each waits
// for the event that another one has locked, and has locked none that the other one needs next.
func TestActionsLockEventsInOneOrder(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		state string
		act   func(b *bench) error
	}{
		"purge": {`published_at = now() - interval '1 hour'`, func(b *bench) error { _, err := b.backlog.Purge(t.Context(), order, 0); return err }},
		"forget": {`published_at = now()`, func(b *bench) error {
			_, err := b.backlog.Forget(t.Context(), "video", []string{"c", "b", "a"})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			// The physical order is the opposite.
			b.exec(t, `
				INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
				SELECT gen_random_uuid(), 'video', a, 'VideoUpdated', v, 'x' FROM unnest('{c,b,a}'::text[]) AS a, generate_series(60, 1, -1) AS v`)
			b.exec(t, `UPDATE outbox SET `+tc.state+` WHERE version < 60`)
			other := pgtest.Begin(t, b.db)
			defer other.Rollback(context.WithoutCancel(t.Context()))
			const lock = `SELECT FROM outbox WHERE aggregate_id = $1 AND version = $2 FOR UPDATE NOWAIT`
			pgtest.Exec(t, other, lock, "a", 1)
			done := make(chan error, 1)
			go func() { done <- tc.act(b) }()
			b.eventually(t, 1, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`)
			for version := 2; version < 60; version++ {
				for _, aggregate := range []string{"a", "b", "c"} {
					pgtest.Exec(t, other, lock, aggregate, version)
				}
			}
			pgtest.End(t, other.Rollback)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
