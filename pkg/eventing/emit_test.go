package eventing_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestConsumeAndEmit replays an order past an inbox that has forgotten it, in one
// transaction with a new one.
func TestConsumeAndEmit(t *testing.T) {
	pg := pgtest.New(t)
	admin, db := pg.Pool(t, pg.Admin), pg.Pool(t, pg.URL)
	_, err := admin.Exec(t.Context(), `
		CREATE TABLE app.debts (debtor text PRIMARY KEY, orders int NOT NULL, version bigint NOT NULL, changed_at timestamptz NOT NULL);
		GRANT SELECT, INSERT, UPDATE ON app.debts TO app_service`)
	if err != nil {
		t.Fatal(err)
	}
	first, second := order("order-1"), order("order-2")
	apply := func(orders []eventing.Event, want ...inbox.Outcome) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
			for i, e := range orders {
				if got, err := inbox.ApplyOne(t.Context(), tx, billing{}, e); err != nil || got != want[i] {
					return fmt.Errorf("%s: outcome %v (%w), want %v", e.AggregateID, got, err, want[i])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	apply([]eventing.Event{first}, inbox.Applied)
	apply([]eventing.Event{first, second}, inbox.Stale, inbox.Applied)
	var orders, version, events int
	err = db.QueryRow(t.Context(), `
		SELECT orders, version, (SELECT count(*) FROM outbox WHERE aggregate_id = debtor) FROM debts`).
		Scan(&orders, &version, &events)
	if err != nil || orders != 2 || version != 2 || events != 2 {
		t.Errorf("%d orders, version %d, %d events (%v), want two of each", orders, version, events, err)
	}
}
