package rebuild_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/rebuild"
)

// The session that holds the lock of a rebuild is idle for as long as the rebuild takes. No time limit of the database ends it,
// and with row_security = off Postgres would refuse each statement of an owner.
func TestSettingsOfTheDatabaseEndNoRebuild(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	_, err := pg.Pool(t, pg.Admin).Exec(t.Context(), `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET idle_session_timeout = 100000', current_database());
		EXECUTE format('ALTER DATABASE %I SET statement_timeout = 100000', current_database());
		EXECUTE format('ALTER DATABASE %I SET row_security = off', current_database()); END $$`)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), pg.Admin)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := rebuild.Session("public")(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	var limited []string
	err = conn.QueryRow(t.Context(), `SELECT coalesce(array_agg(name::text), '{}') FROM pg_settings WHERE name = 'row_security' AND setting <> 'on' OR setting <> '0' AND name IN
		('statement_timeout', 'idle_session_timeout', 'transaction_timeout')`).Scan(&limited)
	if err != nil || len(limited) > 0 {
		t.Errorf("ended by %v, %v", limited, err)
	}
}
