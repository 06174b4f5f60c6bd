package rebuild_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/rebuild"
)

// Statements that wait for no lock of the exchange come between its check of the shapes and its exclusive locks. The
// exchange would leave what they make with the table that is no longer served.
func TestAChangeJustBeforeTheExchangeIsSeen(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"a right":             `GRANT TRIGGER ON app.one TO app_service`,
		"a materialized view": `CREATE MATERIALIZED VIEW app.made AS SELECT count(*) FROM app.one`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 10)
			other := f.admin
			change := sync.OnceFunc(func() {
				if _, err := other.Exec(t.Context(), sql); err != nil {
					t.Error(err)
				}
			})
			f.connect(t, &pgtest.Tracer{Before: func(_ context.Context, _ *pgx.Conn, trip pgtest.Trip) {
				if trip.Contains("IN ACCESS EXCLUSIVE MODE") {
					change()
				}
			}})
			if _, err := f.Run(t.Context(), ada, rebuild.Options{}, f); !errors.Is(err, rebuild.ErrShape) {
				t.Errorf("the rebuild: %v, want ErrShape", err)
			}
			f.phase(t, rebuild.Comparing)
		})
	}
}
