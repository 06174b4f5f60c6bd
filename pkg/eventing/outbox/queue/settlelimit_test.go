package queue_test

import (
	"context"
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// A relay is killed while the server executes its settlement. Fifteen seconds after its last heartbeat another relay takes over. If
// the settlement were executed later still, it would not have seen an event that was committed meanwhile behind the retry that it
// marks, and no relay would look for that event. So the server has the relay's own limit.
func TestASettlementEndsBeforeItsRelayCountsAsDead(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	db := pg.Pool(t, pg.URL)
	b := box{queue.New(db), db}
	pgtest.Exec(t, pg.Pool(t, pg.Admin), `
		CREATE TABLE app.limits (until interval);
		GRANT INSERT, SELECT ON app.limits TO PUBLIC;
		CREATE FUNCTION app.note_limit() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO app.limits VALUES (current_setting('statement_timeout')::interval); RETURN NEW; END $$;
		CREATE TRIGGER note_limit BEFORE UPDATE ON app.outbox FOR EACH ROW
		  WHEN (OLD.published_at IS NULL AND NEW.published_at IS NOT NULL) EXECUTE FUNCTION app.note_limit()`)
	b.append(t, "free", 1, 1)
	b.append(t, "locked", 1, 1)
	w := b.page(t, as("t"))
	tx := pgtest.Begin(t, db)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	pgtest.Exec(t, tx, `SELECT FROM outbox WHERE aggregate_id = 'locked' FOR UPDATE`)
	settle(t, b, "t", queue.Settlement{Batch: w.Batches[0], Published: 1}, queue.Settlement{Batch: w.Batches[1], Published: 1}) // around the lock
	pgtest.End(t, tx.Rollback)
	settle(t, b, "t", queue.Settlement{Batch: w.Batches[1], Published: 1})
	const within = `SELECT count(*) FROM app.limits WHERE until > interval '0' AND until <= $1`
	if n := b.count(t, within, queue.Timeout); n != 2 {
		var limits []time.Duration
		_ = db.QueryRow(t.Context(), `SELECT array_agg(until) FROM app.limits`).Scan(&limits)
		t.Errorf("%d of 2 settlements have the relay's limit on the server, which is %v", n, limits)
	}
}
