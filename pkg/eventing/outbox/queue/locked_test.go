package queue_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// Other sessions lock a head, a row behind another head, and a row behind a retry; one
// batch is lost to another relay, and one has a row that is gone.
func TestSettleGoesAroundLockedRows(t *testing.T) {
	t.Parallel()
	for name, pooled := range map[string]bool{"session": false, "pooler": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pg, b := newBoxBehind(t, pooled)
			for _, id := range []string{"free", "gone", "head", "lost", "tail", "fault", "retry"} {
				b.append(t, id, 1, 2)
			}
			b.exec(t, `UPDATE outbox SET next_retry_at = now() WHERE aggregate_id = 'retry' AND version = 1`)
			w := b.page(t, as("t"))
			b.append(t, "retry", 3, 3) // it is behind the batch
			if len(w.Batches) != 7 {
				t.Fatalf("claimed %d batches", len(w.Batches))
			}
			b.exec(t, `UPDATE outbox SET lock_token = 'another' WHERE aggregate_id = 'lost' AND version = 1`)
			b.exec(t, `DELETE FROM outbox WHERE aggregate_id = 'gone' AND version = 2`)
			tx := pgtest.Begin(t, pg.Pool(t, pg.URL))
			t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
			defer func() { _ = tx.Rollback(t.Context()) }()
			pgtest.Exec(t, tx, `
				SELECT FROM outbox
				 WHERE aggregate_id = 'head' AND version = 1 OR aggregate_id IN ('tail', 'fault') AND version = 2
				    OR aggregate_id = 'retry' AND version = 3
				   FOR UPDATE`)
			var outcomes []queue.Settlement
			heads := map[uuid.UUID]string{}
			for _, batch := range w.Batches {
				heads[batch.Head()] = batch[0].AggregateID
				o := queue.Settlement{Batch: batch, Published: 2}
				if batch[0].AggregateID == "fault" {
					o = queue.Settlement{Batch: batch, Published: 1, Failure: &queue.Failure{Reason: "x", RetryIn: time.Hour}}
				}
				outcomes = append(outcomes, o)
			}
			got, err := b.Settle(t.Context(), "t", outcomes)
			if err != nil {
				t.Fatal(err)
			}
			var busy []string
			for _, id := range got.Locked {
				busy = append(busy, heads[id])
			}
			slices.Sort(busy)
			if want := []string{"fault", "head", "retry", "tail"}; !slices.Equal(busy, want) || len(got.Lost) != 1 {
				t.Errorf("busy %v, lost %d; want %v, and 1", busy, got.Lost, want)
			}
			for id, n := range map[string]int{"free": 0, "gone": 0, "head": 2, "tail": 2, "fault": 2, "lost": 2, "retry": 3} {
				if got := b.count(t, unpublished+` AND aggregate_id = $1`, id); got != n {
					t.Errorf("%s: %d unpublished, want %d", id, got, n)
				}
			}
			if n := b.count(t, `SELECT count(*) FROM outbox WHERE lock_token = 't'`); n != 4 {
				t.Errorf("%d leases are left, want those of the batches that are not written", n)
			}
			_ = tx.Rollback(t.Context())
			if got, err := b.Settle(t.Context(), "t", outcomes); err != nil || len(got.Locked) != 0 || len(got.Lost) != 3 {
				t.Errorf("once nothing is locked: %+v, %v; want the others lost", got, err)
			}
			if n := b.count(t, `SELECT count(*) FROM outbox WHERE lock_token = 't'`); n != 0 {
				t.Errorf("%d leases are left", n)
			}
			if n := b.count(t, unpublished+` AND aggregate_id = 'retry' AND next_retry_at IS NOT NULL`); n != 1 {
				t.Error("what is behind a retry is found by no relay")
			}
		})
	}
}
