package problem_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/problem"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestARefusedSessionIsNoFaultOfTheCode has Postgres refuse sessions, as it does when a role's password
// was changed or has expired. No statement was sent, so the caller may try again.
func TestARefusedSessionIsNoFaultOfTheCode(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t).URL
	for name, spoil := range map[string]func(*pgx.ConnConfig){
		"role":     func(c *pgx.ConnConfig) { c.User = "no_such_role" },
		"database": func(c *pgx.ConnConfig) { c.Database = "no_such_database" },
	} {
		config, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		spoil(config)
		_, refused := pgx.ConnectConfig(t.Context(), config)
		if _, ok := errors.AsType[*pgconn.PgError](refused); !ok {
			t.Fatalf("%s: %v, want a refusal by the server", name, refused)
		}
		got := problem.From(fmt.Errorf("read video: %w", refused))
		if got.Code != problem.CodeUnavailable || got.RetryAfter == 0 {
			t.Errorf("%s: code %d, retry after %s, of %v; want UNAVAILABLE", name, got.Code, got.RetryAfter, refused)
		}
	}
}
