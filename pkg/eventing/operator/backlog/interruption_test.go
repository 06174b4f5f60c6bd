package backlog

import (
	"context"
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
)

// Postgres ends the session of an operator's action before each of its statements in turn. The action goes on, or it
// fails, and changes nothing, or finished batches only. Called again, it has the effect and the audit entries of one call.
func TestAnActionIsInterrupted(t *testing.T) {
	t.Parallel()
	const many = 1200 // events, which are three batches of a retry, and two of a purge
	for name, tc := range map[string]struct {
		prepare func(t *testing.T, b *bench)
		action  func(ctx context.Context, b *bench, actions *Backlog) error
		batches bool // the action has several transactions
		goesOn  bool // the action tries again
	}{
		"retry": {goesOn: true, prepare: func(t *testing.T, b *bench) {
			t.Helper()
			b.exec(t, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, parked_at, publish_attempts)
				SELECT gen_random_uuid(), 'video', n, 'VideoCreated', 1, '', now(), 5 FROM generate_series(1, $1::int) n`, many)
		}, action: func(ctx context.Context, _ *bench, actions *Backlog) error {
			_, err := actions.Retry(ctx, order, Filter{})
			return err
		}},
		"retry one": {goesOn: true, prepare: func(t *testing.T, b *bench) {
			t.Helper()
			b.parked(t, "VideoUpdated")
		}, action: func(ctx context.Context, b *bench, actions *Backlog) error {
			return actions.RetryOne(ctx, order, b.last)
		}},
		"skip": {prepare: func(t *testing.T, b *bench) {
			t.Helper()
			b.parked(t, "VideoUpdated")
		}, action: func(ctx context.Context, b *bench, actions *Backlog) error {
			return actions.Skip(ctx, order, b.last)
		}},
		"skip a marker": {prepare: func(t *testing.T, b *bench) {
			t.Helper()
			b.parked(t, eventing.Skipped)
		}, action: func(ctx context.Context, b *bench, actions *Backlog) error {
			return actions.Skip(ctx, order, b.last)
		}},
		"allow": {prepare: func(t *testing.T, b *bench) {
			t.Helper()
			b.append(t, "a", 2)
		}, action: func(ctx context.Context, _ *bench, actions *Backlog) error {
			hole, err := actions.PlanAllow(ctx, "video", "a", 3)
			if err != nil {
				return err
			}
			return actions.Allow(ctx, order, hole)
		}},
		"purge": {goesOn: true, prepare: func(t *testing.T, b *bench) {
			t.Helper()
			b.append(t, "a", many)
			b.exec(t, `UPDATE outbox SET published_at = now() - interval '1 hour'`)
		}, action: func(ctx context.Context, _ *bench, actions *Backlog) error {
			_, err := actions.Purge(ctx, order, time.Minute)
			return err
		}},
		"forget": {batches: true, prepare: func(t *testing.T, b *bench) {
			t.Helper()
			b.append(t, "a", many)
			b.exec(t, `UPDATE outbox SET published_at = now() WHERE version < $1`, many)
		}, action: func(ctx context.Context, _ *bench, actions *Backlog) error {
			_, err := actions.Forget(ctx, "video", []string{"a"})
			return err
		}},
		"begin an epoch": {prepare: func(t *testing.T, b *bench) {
			t.Helper()
			b.append(t, "a", 1)
		}, action: func(ctx context.Context, _ *bench, actions *Backlog) error {
			_, err := actions.BeginEpoch(ctx, order)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want string
			pgtest.EachStatement(t, func(t *testing.T, i *pgtest.Interruption) {
				b := newBench(t)
				tc.prepare(t, b)
				before := b.state(t)
				actions := New(i.Pool(t, b.pg.URL))
				i.Begin()
				err := tc.action(t.Context(), b, actions)
				interrupted, after := i.End(), b.state(t)
				switch {
				case !interrupted && err != nil:
					t.Fatal(err)
				case !interrupted:
					want = after
				case err == nil && after != want:
					t.Errorf("the action succeeds, with this effect:\n%s\nwant:\n%s", after, want)
				case err != nil && tc.goesOn:
					t.Errorf("the action does not go on: %v", err)
				case err != nil && after != before && !tc.batches:
					t.Errorf("an action that failed (%v) has this effect:\n%s\nbefore:\n%s", err, after, before)
				}
				if err == nil {
					return
				}
				if err := tc.action(t.Context(), b, actions); err != nil {
					t.Errorf("called again: %v", err)
				}
				if after := b.state(t); after != want {
					t.Errorf("called again, the effect is:\n%s\nwant:\n%s", after, want)
				}
			})
		})
	}
}

// parked parks version 2 of 3 of the aggregate a, which has this type. b.last is its id.
func (b *bench) parked(t *testing.T, name string) {
	t.Helper()
	b.last = b.append(t, "a", 3)[1]
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE version = 1`)
	b.exec(t, `UPDATE outbox SET event_type = $2 WHERE id = $1`, b.last, name)
	b.park(t, b.last, "no field 7")
}

// state returns the outbox, the audit entries of its events and the epochs, without times and ids. The numbers of a purge's
// entries are added up.
func (b *bench) state(t *testing.T) (state string) {
	t.Helper()
	err := b.db.QueryRow(t.Context(), `
		SELECT string_agg(line, E'\n' ORDER BY line) FROM (
			SELECT 'outbox ' || concat_ws(' ', aggregate_type, aggregate_id, version, event_type, length(payload), publish_attempts,
			       published_at IS NOT NULL, parked_at IS NOT NULL, next_retry_at IS NOT NULL, gapless) FROM outbox
			 UNION ALL
			SELECT concat_ws(' ', action, actor, why, aggregate_type, aggregate_id, version, count(*) FILTER (WHERE action <> 'purge'),
			       sum((record ->> 'purged')::int)) FROM operator_actions GROUP BY action, actor, why, aggregate_type, aggregate_id, version
			 UNION ALL
			SELECT 'epochs ' || count(*) FROM outbox_epochs
			 UNION ALL
			SELECT 'scan from ' || (low::text = '1:1:') FROM outbox_relays) AS lines(line)`).Scan(&state)
	if err != nil {
		t.Fatal(err)
	}
	return state
}
