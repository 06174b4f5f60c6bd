package queue

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
)

// The planner has statistics in which nothing is parked, and many aggregates are parked since. No
// event is compared with each of them.
func TestTheBacklogComparesNoEventWithEachParked(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	db := pg.Pool(t, pg.URL+"&pool_max_conns=1")
	pgtest.Exec(t, db, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, published_at)
		SELECT gen_random_uuid(), 'video', v::text, 'VideoUpdated', 1, '', now() FROM generate_series(1, 20000) v`)
	pgtest.Exec(t, pg.Pool(t, pg.Admin), `VACUUM (ANALYZE) app.outbox`)
	var plan []string
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), countedPlan); err != nil {
			return err
		}
		from, ids, to := partColumns(Beginning.Since())
		rows, _ := tx.Query(t.Context(), `EXPLAIN `+backlog, CountLimit, maxTenantsCounted, []string{}, from, ids, to, []uuid.UUID{}, maxFound)
		var err error
		plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(plan, "\n"); !strings.Contains(text, "Hash") || strings.Contains(text, "Nested Loop Anti Join") {
		t.Errorf("the plan of the backlog:\n%s", text)
	}
}
