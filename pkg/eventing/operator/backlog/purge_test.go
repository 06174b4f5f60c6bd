package backlog

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
)

// A refused marker is removed while a purge or an erasure deletes the events before it. Whichever locks the event before the
// marker first, that event stays: without any event of the aggregate, the outbox would take any version.
func TestTheNewestEventStaysWhileAMarkerIsRemoved(t *testing.T) {
	t.Parallel()
	remove := func(b *bench, marker uuid.UUID) error { return b.backlog.Skip(t.Context(), order, marker) }
	purge := func(b *bench, _ uuid.UUID) error { _, err := b.backlog.Purge(t.Context(), order, 0); return err }
	forget := func(b *bench, _ uuid.UUID) error {
		_, err := b.backlog.Forget(t.Context(), "video", []string{"a"})
		return err
	}
	for name, act := range map[string][2]func(*bench, uuid.UUID) error{
		"purge after the removal":  {remove, purge},
		"purge before the removal": {purge, remove},
		"forget after the removal": {remove, forget},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			ids := b.append(t, "a", 3)
			b.exec(t, `UPDATE outbox SET published_at = now() - interval '1 hour' WHERE id = ANY ($1)`, ids[:2])
			b.exec(t, `UPDATE outbox SET event_type = $2, payload = '' WHERE id = $1`, ids[2], eventing.Skipped)
			b.park(t, ids[2], "refused")
			// Skip and Purge wait for the audit table with their last statement before COMMIT.
			other, err := b.pg.Pool(t, b.pg.Admin).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = other.Rollback(context.WithoutCancel(t.Context())) }()
			pgtest.Exec(t, other, `LOCK TABLE app.operator_actions`)
			done := make(chan error, len(act))
			for i, do := range act {
				go func() { done <- do(b, ids[2]) }()
				b.eventually(t, i+1, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
			}
			pgtest.End(t, other.Rollback)
			for range act {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			if n := b.count(t, `SELECT count(*) FROM outbox WHERE aggregate_id = 'a' AND version = 2`); n != 1 {
				t.Error("the newest event is gone")
			}
			far := eventing.Event{
				ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: "a", Type: "VideoUpdated", Version: 2,
				SchemaVersion: 1, OccurredAt: time.Now(), Epoch: eventing.FirstEpoch,
			}
			err = pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error { return outbox.Append(t.Context(), tx, nil, far) })
			if !errors.Is(err, outbox.ErrVersionTaken) {
				t.Errorf("version 2 again: %v", err)
			}
		})
	}
}
