package backlog

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
)

// The owner commits the next version while the removal of a refused marker has not committed. The
// relays that claim now pass that version by, because the marker is still there. The removal itself has
// a relay look for it: a statement after the removal might be missing on a standby that takes over.
func TestTheEventBehindARemovedMarkerIsDue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := b.append(t, "a", 2)
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE id = $1`, ids[0])
	b.exec(t, `UPDATE outbox SET event_type = $2, payload = '' WHERE id = $1`, ids[1], eventing.Skipped)
	b.park(t, ids[1], "refused")
	// The command waits for the audit table, its last statement before COMMIT.
	other, err := b.pg.Pool(t, b.pg.Admin).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, other, `LOCK TABLE app.operator_actions`)
	skipped := make(chan error, 1)
	go func() { skipped <- b.backlog.Skip(t.Context(), order, ids[1]) }()
	b.eventually(t, 1, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	next := eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: "a", Type: "VideoUpdated", Version: 3,
		SchemaVersion: 1, OccurredAt: time.Now(), Epoch: eventing.FirstEpoch,
	}
	err = pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error { return outbox.Append(t.Context(), tx, nil, next) })
	if err != nil {
		t.Fatal(err)
	}
	b.exec(t, `UPDATE outbox_relays SET low = pg_current_snapshot()`) // by a relay that has claimed now
	pgtest.End(t, other.Rollback)
	if err := <-skipped; err != nil {
		t.Fatal(err)
	}
	b.exec(t, `UPDATE outbox SET next_retry_at = NULL WHERE id = $1`, next.ID) // as on a standby without a statement after the removal
	if n := b.count(t, `
		SELECT count(*) FROM outbox o, outbox_relays r
		 WHERE o.id = $1 AND r.seen_at = '-infinity' AND NOT pg_visible_in_snapshot(o.xact, r.low)`, next.ID); n == 0 {
		t.Error("no relay looks for the event behind the marker")
	}
	b.relay(t, 1)
	b.eventually(t, 0, unpublished)
	b.eventually(t, 1, `SELECT count(*) FROM outbox_relays WHERE isfinite(seen_at)`)
	if n := b.count(t, `SELECT count(*) FROM outbox_relays`); n != 1 {
		t.Errorf("%d rows are in the table of relays, want that of the relay", n)
	}
}

// There is no row of a relay, as after a restore without them. A relay that begins during the removal scans the whole table, but the
// marker is still there, so it passes the event behind the marker by. The row of the removal makes it, or any other one, scan again.
func TestARemovalBeforeTheFirstRelay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := b.append(t, "a", 2)
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE id = $1`, ids[0])
	b.exec(t, `UPDATE outbox SET event_type = $2, payload = '' WHERE id = $1`, ids[1], eventing.Skipped)
	b.park(t, ids[1], "refused")
	b.exec(t, `DELETE FROM outbox_relays`)
	if err := b.backlog.Skip(t.Context(), order, ids[1]); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox_relays WHERE low::text = '1:1:'`); n != 1 {
		t.Errorf("%d rows have a relay scan the whole table", n)
	}
}

// The clock was set back since the event was parked. The command waits for the time of a publish, and
// not for the time in the row.
func TestASkipAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.append(t, "a", 1)[0]
	b.park(t, id, "refused")
	b.exec(t, `UPDATE outbox SET parked_at = now() + interval '2 hours' WHERE id = $1`, id)
	if p, err := b.backlog.PlanSkip(t.Context(), id); err != nil || p.Wait != publishWindow.Seconds() {
		t.Errorf("a wait of %v s, %v; want %v", p.Wait, err, publishWindow)
	}
	for _, waited := range []bool{false, true} {
		if done, err := b.backlog.skip(t.Context(), order, id, waited); err != nil || done != waited {
			t.Errorf("waited %t: skipped %t, %v", waited, done, err)
		}
	}
	b.park(t, id, "refused again")
	b.exec(t, `UPDATE outbox SET parked_at = now() WHERE id = $1`, id)
	if done, err := b.backlog.skip(t.Context(), order, id, true); err != nil || done {
		t.Errorf("parked a moment ago: skipped %t, %v", done, err)
	}
}

// The event is retried and parked again while the command waits for its row. That this is later than the
// begin of the command's transaction does not mean that the clock was set back.
func TestASkipBehindANewParking(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.append(t, "a", 1)[0]
	b.park(t, id, "refused")
	b.exec(t, `UPDATE outbox SET parked_at = now() + interval '2 hours' WHERE id = $1`, id)
	tx := pgtest.Begin(t, b.db)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, tx, `SELECT FROM outbox WHERE id = $1 FOR UPDATE`, id)
	type result struct {
		done bool
		err  error
	}
	skipped := make(chan result, 1)
	go func() {
		done, err := b.backlog.skip(t.Context(), order, id, true)
		skipped <- result{done, err}
	}()
	b.eventually(t, 1, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	pgtest.Exec(t, tx, `UPDATE outbox SET parked_at = clock_timestamp() WHERE id = $1`, id)
	pgtest.End(t, tx.Commit)
	if got := <-skipped; got.done || got.err != nil {
		t.Errorf("skipped %t, %v", got.done, got.err)
	}
}
