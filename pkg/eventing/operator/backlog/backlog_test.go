package backlog

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/outbox"
)

func TestStatusAddsUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if s, err := b.backlog.Status(t.Context()); err != nil || s.Pending != 0 || s.OldestAge != 0 || len(s.ByReason) != 0 {
		t.Errorf("empty outbox: %+v, %v", s, err)
	}
	a, c := b.append(t, "a", 5), b.append(t, "c", 2)
	b.append(t, "free", 3)
	b.park(t, a[1], "no field 7")
	b.park(t, c[0], "no field 7")
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE id = $1`, a[0])
	b.exec(t, `UPDATE outbox SET occurred_at = now() - interval '1 hour' WHERE aggregate_id = 'free' AND version = 1`)
	s, err := b.backlog.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Pending != 9 || s.Parked != 2 || s.Blocked != 4 || s.OldestAge < 3600 {
		t.Errorf("status %+v, want 9 pending, 2 parked, 4 blocked, the oldest of an hour", s)
	}
	if diff := cmp.Diff([]Reason{{"no field 7", 2}}, s.ByReason); diff != "" {
		t.Error(diff)
	}
	if len(s.ByAggregate) != 2 || s.ByAggregate[0].Event != a[1].String() || s.ByAggregate[0].Blocked != 3 || s.ByAggregate[1].Blocked != 1 {
		t.Errorf("by aggregate %+v, want a with 3 blocked, then c with 1", s.ByAggregate)
	}
}

// A status is bounded, however many events are parked, and no event has waited for less than no time.
func TestStatusIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, parked_at, last_error)
		SELECT gen_random_uuid(), 'video', n, 'VideoUpdated', 1, '', now(), 'reason ' || n FROM generate_series(1, $1::int) AS n`, maxGroups+50)
	b.append(t, "early", 1)
	b.exec(t, `UPDATE outbox SET occurred_at = now() + interval '1 hour' WHERE aggregate_id = 'early'`)
	s, err := b.backlog.Status(t.Context())
	if err != nil || s.Parked != maxGroups+50 || len(s.ByReason) != maxGroups || len(s.ByAggregate) != maxGroups || s.OldestAge != 0 {
		t.Errorf("%d parked, %d reasons, %d aggregates, the oldest of %v s, %v", s.Parked, len(s.ByReason), len(s.ByAggregate), s.OldestAge, err)
	}
}

func TestListSaysTheStateOfEach(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a, c := b.append(t, "a", 3), b.append(t, "c", 3)
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE id = $1`, a[0])
	b.park(t, a[1], "no field 7")
	b.exec(t, `UPDATE outbox SET lock_token = 't', locked_at = now() WHERE id IN ($1, $2)`, c[0], a[2])
	b.exec(t, `UPDATE outbox SET next_retry_at = now() + interval '1 minute' WHERE id = $1`, c[1])
	b.exec(t, `UPDATE outbox SET occurred_at = now() - interval '1 hour' WHERE id = $1`, c[2])
	states := func(f Filter, limit int) map[string]string {
		t.Helper()
		events, err := b.backlog.List(t.Context(), f, limit)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, e := range events {
			got[e.AggregateID+string('0'+rune(e.Version))] = e.State
		}
		return got
	}
	all := map[string]string{"a2": "parked", "a3": "blocked", "c1": "leased", "c2": "retrying", "c3": "pending"}
	for _, test := range []struct {
		filter Filter
		limit  int
		want   map[string]string
	}{
		{Filter{}, 100, all},
		{Filter{}, 2, map[string]string{"c3": "pending", "a2": "parked"}}, // the oldest
		{Filter{Parked: true}, 100, map[string]string{"a2": "parked"}},
		{Filter{AggregateID: "a"}, 100, map[string]string{"a2": "parked", "a3": "blocked"}},
		{Filter{Reason: "field 7"}, 100, map[string]string{"a2": "parked"}},
		{Filter{Reason: "%"}, 100, map[string]string{}},
	} {
		if diff := cmp.Diff(test.want, states(test.filter, test.limit)); diff != "" {
			t.Errorf("%+v: %s", test.filter, diff)
		}
	}
	if d, err := b.backlog.Show(t.Context(), a[0]); err != nil || d.Event.State != "published" || !strings.Contains(string(d.Row), `"payload"`) {
		t.Errorf("show: %+v, %v", d, err)
	}
	if _, err := b.backlog.Show(t.Context(), uuid.New()); !errors.Is(err, ErrUnknown) {
		t.Errorf("show of nothing: %v", err)
	}
}

func TestRetryAndSkipLetTheRestLeaveInOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.setPoison("bad3")
	ids := b.append(t, "bad", 30)
	for range 20 {
		b.append(t, uuid.NewString(), 3)
	}
	// The next refusal parks the event.
	b.exec(t, `UPDATE outbox SET publish_attempts = 4 WHERE id = $1`, ids[2])
	b.relay(t, 2)
	b.eventually(t, 28, unpublished) // all others are published: only its own aggregate waits
	b.eventually(t, 1, `SELECT count(*) FROM outbox WHERE parked_at IS NOT NULL AND last_error LIKE '%field 7%'`)
	if diff := cmp.Diff(upTo(2), b.sent("bad")); diff != "" {
		t.Fatal(diff)
	}
	t.Run("retry before the cause is fixed parks it again", func(t *testing.T) {
		if err := b.backlog.RetryOne(t.Context(), order, ids[2]); err != nil {
			t.Fatal(err)
		}
		b.eventually(t, 0, `SELECT count(*) FROM outbox WHERE id = $1 AND publish_attempts = 0`, ids[2])
		b.exec(t, `UPDATE outbox SET publish_attempts = 4, next_retry_at = NULL WHERE id = $1 AND parked_at IS NULL`, ids[2])
		b.eventually(t, 1, `SELECT count(*) FROM outbox WHERE parked_at IS NOT NULL`)
	})
	t.Run("retry", func(t *testing.T) {
		b.setPoison("bad20")
		b.exec(t, `UPDATE outbox SET publish_attempts = 4 WHERE id = $1`, ids[19])
		if err := b.backlog.RetryOne(t.Context(), order, ids[2]); err != nil {
			t.Fatal(err)
		}
		b.eventually(t, 11, unpublished)
		b.eventually(t, 1, `SELECT count(*) FROM outbox WHERE parked_at IS NOT NULL AND id = $1`, ids[19])
		if diff := cmp.Diff(upTo(19), b.sent("bad")); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("skip", func(t *testing.T) {
		// Half a minute later.
		b.exec(t, `UPDATE outbox SET parked_at = parked_at - interval '30 seconds' WHERE id = $1`, ids[19])
		if err := b.backlog.Skip(t.Context(), order, ids[19]); err != nil {
			t.Fatal(err)
		}
		b.eventually(t, 0, unpublished)
		if diff := cmp.Diff(upTo(30), b.sent("bad")); diff != "" {
			t.Error(diff)
		}
		m := b.message(ids[19])
		e, err := eventing.ParseMessage(m.Data, m.Attributes)
		if err != nil || e.Type != eventing.Skipped || e.Version != 20 || e.Epoch != eventing.FirstEpoch || len(e.Payload) != 0 {
			t.Errorf("in its place: %+v, %v; want a marker without content", e, err)
		}
		d, err := b.backlog.Show(t.Context(), ids[19])
		if err != nil || d.Event.State != "published" || d.Event.Type != eventing.Skipped || len(d.Actions) != 1 {
			t.Fatalf("show after the skip: %+v, %v", d, err)
		}
		var row struct{ Payload, AggregateID, LastError string }
		if err := json.Unmarshal([]byte(strings.ReplaceAll(string(d.Actions[0].Record), "_", "")), &row); err != nil {
			t.Fatal(err)
		}
		if got := d.Actions[0]; got.Action != "skip" || got.By != order.By || got.Why != order.Why || got.DatabaseRole != "app_service" ||
			row.AggregateID != "bad" || row.Payload != `\x6261643230` {
			t.Errorf("audit %+v with record %+v", got, row)
		}
	})
	if n := b.count(t, `SELECT count(*) FROM operator_actions WHERE action = 'retry' AND event_id = $1`, ids[2]); n != 2 {
		t.Errorf("%d retries of an event in the audit table, want 2", n)
	}
}

func TestSkipWaitsForTheLastAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.append(t, "a", 2)[0]
	b.park(t, id, "refused")
	for name, tc := range map[string]struct {
		sql  string
		wait bool
	}{
		"just parked":             {`UPDATE outbox SET parked_at = now() WHERE id = $1`, true},
		"its lease is 29 s old":   {`UPDATE outbox SET lock_token = 't', locked_at = now() - interval '29 seconds' WHERE id = $1`, true},
		"parked in the past":      {`UPDATE outbox SET parked_at = now() - interval '29 seconds' WHERE id = $1`, true},
		"long parked, never held": {`SELECT $1::uuid`, false},
	} {
		t.Run(name, func(t *testing.T) {
			b.exec(t, `UPDATE outbox SET parked_at = now() - interval '1 hour', lock_token = NULL, locked_at = NULL WHERE id = $1`, id)
			b.exec(t, tc.sql, id)
			plan, err := b.backlog.PlanSkip(t.Context(), id)
			if err != nil || (plan.Wait > 0) != tc.wait || plan.Blocked != 1 || plan.Newest || plan.Marker {
				t.Errorf("plan %+v, %v, want a wait: %t", plan, err, tc.wait)
			}
			if !tc.wait {
				return // the others still need it
			}
			if done, err := b.backlog.skip(t.Context(), order, id, false); done || err != nil {
				t.Errorf("skipped: %t, %v", done, err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	b.exec(t, `UPDATE outbox SET parked_at = now() WHERE id = $1`, id)
	cancel()
	if err := b.backlog.Skip(ctx, order, id); !errors.Is(err, context.Canceled) {
		t.Errorf("skip given up: %v", err)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE id = $1`, id) + b.count(t, `SELECT count(*) FROM operator_actions`); n != 1 {
		t.Error("a skip that was given up has left something behind")
	}
}

func TestOnlyParkedEventsCanBeActedUpon(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.append(t, "a", 1)[0]
	actions := map[string]func(uuid.UUID) error{
		"retry": func(id uuid.UUID) error { return b.backlog.RetryOne(t.Context(), order, id) },
		"skip":  func(id uuid.UUID) error { return b.backlog.Skip(t.Context(), order, id) },
		"plan": func(id uuid.UUID) error {
			_, err := b.backlog.PlanSkip(t.Context(), id)
			return err
		},
	}
	for name, act := range actions {
		if err := act(id); !errors.Is(err, ErrNotParked) {
			t.Errorf("%s of a pending event: %v", name, err)
		}
		if err := act(uuid.New()); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s of nothing: %v", name, err)
		}
	}
	b.park(t, id, "refused")
	if plan, err := b.backlog.PlanSkip(t.Context(), id); err != nil || !plan.Newest || plan.Marker {
		t.Errorf("plan %+v, %v; want it to be the newest", plan, err)
	}
	if err := b.backlog.Skip(t.Context(), order, id); err != nil {
		t.Fatal(err)
	}
	if d, err := b.backlog.Show(t.Context(), id); err != nil || d.Event.Reason != "" || d.Event.Attempts != 0 {
		t.Errorf("the marker has the refusals of the event before: %+v, %v", d.Event, err)
	}
	for name, act := range actions {
		if err := act(id); !errors.Is(err, ErrNotParked) {
			t.Errorf("%s of a marker on its way: %v", name, err)
		}
	}
	// The broker refuses the marker too.
	b.park(t, id, "refused")
	if plan, err := b.backlog.PlanSkip(t.Context(), id); err != nil || !plan.Newest || !plan.Marker {
		t.Errorf("plan %+v, %v; want it to be a marker", plan, err)
	}
	if err := b.backlog.Skip(t.Context(), order, id); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, `SELECT count(*) FROM operator_actions WHERE action = 'skip' AND event_id = $1`, id); n != 2 {
		t.Errorf("%d skips in the audit table", n)
	}
	for name, act := range actions {
		if err := act(id); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "skipped") {
			t.Errorf("%s of a skipped event: %v", name, err)
		}
	}
	anonymous := order
	anonymous.By = " "
	id = b.append(t, "b", 1)[0]
	b.park(t, id, "refused")
	if err := b.backlog.Skip(t.Context(), anonymous, id); err == nil || b.count(t, `SELECT count(*) FROM outbox`) != 1 {
		t.Errorf("skip without an actor: %v", err)
	}
}

func TestRetryAllTakesWhatTheFilterLetsThrough(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, parked_at, next_retry_at, publish_attempts, last_error)
		SELECT gen_random_uuid(), 'video', n, 'VideoCreated', 1, '', now(), now(), 5, CASE WHEN n <= 1200 THEN 'no field 7' ELSE 'too large' END
		  FROM generate_series(1, 1500) n`)
	const parked = `SELECT count(*) FROM outbox WHERE parked_at IS NOT NULL`
	for _, step := range []struct {
		filter Filter
		freed  int64
		left   int
	}{
		{Filter{Reason: "nothing like it"}, 0, 1500},
		{Filter{Reason: "large", AggregateID: "1300"}, 1, 1499},
		{Filter{Reason: "field 7"}, 1200, 299}, // more than two batches
		{Filter{}, 299, 0},
		{Filter{}, 0, 0},
	} {
		got, err := b.backlog.Retry(t.Context(), order, step.filter)
		if err != nil || got != (Retried{Freed: step.freed}) || b.count(t, parked) != step.left {
			t.Errorf("%+v: %+v, %v, %d are left; want %d and %d", step.filter, got, err, b.count(t, parked), step.freed, step.left)
		}
	}
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE publish_attempts > 0 OR next_retry_at > now() OR next_retry_at IS NULL`); n != 0 {
		t.Errorf("%d of the freed events remember their refusals, or are not due", n)
	}
	if n := b.count(t, `SELECT count(*) FROM operator_actions WHERE action = 'retry'`); n != 1500 {
		t.Errorf("%d audit entries, want 1500", n)
	}
}

func TestPurgeTakesOldPublishedEventsOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	// Version 2 is the newest of each aggregate, and stays.
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, published_at)
		SELECT gen_random_uuid(), 'video', n, 'VideoUpdated', 2, '', now() - interval '8 days' FROM generate_series(1, 6000) n`)
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at, published_at)
		SELECT gen_random_uuid(), 'video', n, 'VideoCreated', 1, '', now() - interval '30 days',
		       CASE n % 3 WHEN 0 THEN now() - interval '8 days' WHEN 1 THEN now() - interval '6 days' END
		  FROM generate_series(1, 6000) n`)
	const week = 7 * 24 * time.Hour
	if old, err := b.backlog.PlanPurge(t.Context(), week); err != nil || old != 2000 || b.count(t, `SELECT count(*) FROM outbox`) != 12_000 {
		t.Errorf("plan of %d, %v, want 2000 and nothing deleted", old, err)
	}
	if _, err := b.backlog.Purge(t.Context(), audit.Actor{By: " "}, week); err == nil || b.count(t, `SELECT count(*) FROM outbox`) != 12_000 {
		t.Errorf("purge without a name: %v", err)
	}
	purged, err := b.backlog.Purge(t.Context(), order, week)
	if err != nil || purged != 2000 {
		t.Errorf("purged %d, %v, want 2000", purged, err)
	}
	if n := b.count(t, `SELECT sum((record->>'purged')::int) FROM operator_actions WHERE action = 'purge' AND actor = 'ada'`); n != 2000 {
		t.Errorf("the audit table has %d events, want 2000", n)
	}
	if n := b.count(t, `SELECT count(*) FROM operator_actions WHERE (record->>'purged')::int = 0`); n != 0 {
		t.Errorf("the audit table has %d entries of nothing", n)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox`); n != 10_000 {
		t.Errorf("%d rows are left, want 10000", n)
	}
	if n := b.count(t, unpublished); n != 2000 {
		t.Errorf("%d of 2000 unpublished events are left", n)
	}
}

func TestTheServiceCannotRewriteItsAuditTable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, sql := range []string{`UPDATE operator_actions SET actor = 'other'`, `DELETE FROM operator_actions`, `TRUNCATE operator_actions`} {
		if _, err := b.db.Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

func TestSendableLooksPastParkedAggregates(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sendable := func(want bool) {
		t.Helper()
		now, err := b.backlog.Moment(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := b.backlog.Sendable(t.Context(), now); err != nil || got != want {
			t.Errorf("sendable %t, %v, want %t", got, err, want)
		}
	}
	sendable(false)
	ids := b.append(t, "a", 3)
	sendable(true)
	b.park(t, ids[0], "refused")
	sendable(false)
	b.append(t, "b", 1)
	sendable(true)
}

// A dump has brought the event, from a cluster that has had more transactions than this one.
func TestSendableHasRestoredEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	now, err := b.backlog.Moment(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, xact)
		VALUES (gen_random_uuid(), 'video', 'a', 'VideoCreated', 1, '', '9000000000001')`)
	b.exec(t, `UPDATE outbox_relays SET low = '9000000000000:9000000000000:'`)
	for _, want := range []bool{true, false} {
		if got, err := b.backlog.Sendable(t.Context(), now); err != nil || got != want {
			t.Errorf("sendable %t, %v, want %t", got, err, want)
		}
		b.exec(t, `UPDATE outbox SET parked_at = now()`)
	}
}

// TestSendableLeavesLaterEventsOut has one transaction that began before the moment and commits
// after it, and many that begin after it.
func TestSendableLeavesLaterEventsOut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one := b.pg.Pool(t, b.pg.URL+"&pool_max_conns=1") // its session counts its own pages
	open := pgtest.Begin(t, b.db)
	pgtest.Exec(t, open, `SELECT pg_current_xact_id()`)
	before := b.append(t, "before", 1)
	now, err := b.backlog.Moment(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	late := eventing.Event{ID: uuid.New(), AggregateType: "video", AggregateID: "late", Type: "VideoCreated", Version: 1,
		SchemaVersion: 1, OccurredAt: time.Now().UTC(), Epoch: eventing.FirstEpoch}
	if err := errors.Join(outbox.Append(t.Context(), open, nil, late), open.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
		SELECT gen_random_uuid(), 'video', n, 'VideoCreated', 1, '' FROM generate_series(1, 20000) n`)
	pgtest.Exec(t, b.pg.Pool(t, b.pg.Admin), `VACUUM (ANALYZE) app.outbox`)
	read := func() (pages int) {
		t.Helper()
		pgtest.Exec(t, one, `SELECT pg_stat_force_next_flush()`)
		return pgtest.Value[int](t, one, `
			SELECT coalesce(heap_blks_read, 0) + coalesce(heap_blks_hit, 0) + coalesce(idx_blks_read, 0) + coalesce(idx_blks_hit, 0)
			  FROM pg_statio_user_tables WHERE relname = 'outbox'`)
	}
	sendable := func(want bool) {
		t.Helper()
		if got, err := New(one).Sendable(t.Context(), now); err != nil || got != want {
			t.Errorf("sendable %t, %v, want %t", got, err, want)
		}
	}
	sendable(true)
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE id = $1`, before[0])
	start := read()
	sendable(false)
	if n := read() - start; n > 100 {
		t.Errorf("20,000 later events were read in %d pages, want a few", n)
	}
}
