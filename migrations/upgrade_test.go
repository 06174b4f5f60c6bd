package migrations_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/migrations"
	"example.com/lockstep/pkg/eventing/migrate"
)

// history is the closed list of numbers that databases from before the library's own
// numbers have applied.
var history = map[migrations.Service][]int64{
	migrations.Video:   {1, 2, 3, 10, 20, 40, 50, 51, 53, 54, 56},
	migrations.Catalog: {1, 2, 3, 20, 21, 30, 40, 51, 52, 53, 55},
}

// TestUpgradeFromBeforeTheLibrarysNumbers: such a database has everything under the
// numbers of its history. Two of the library's new numbers find their work done there:
// they change no object and no role, and wait for no table.
func TestUpgradeFromBeforeTheLibrarysNumbers(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	admin := db.Pool(t, db.Admin)
	// The library's numbers whose work that history has done. Its other numbers, and the
	// service's own from 1000 on, are younger.
	const repeated = `(102, 206)`
	const versions = `SELECT version_id FROM %s.goose_db_version
		WHERE (version_id BETWEEN 1 AND 99 OR version_id IN ` + repeated + `) AND is_applied ORDER BY 1`
	applied := func(s migrations.Service) []int64 {
		t.Helper()
		rows, err := admin.Query(t.Context(), fmt.Sprintf(versions, s))
		if err != nil {
			t.Fatal(err)
		}
		numbers, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			t.Fatal(err)
		}
		return numbers
	}
	newest := map[migrations.Service][]int64{}
	for s := range history {
		newest[s] = applied(s)
		pgtest.Exec(t, admin, fmt.Sprintf(`DELETE FROM %s.goose_db_version WHERE version_id IN `+repeated, s))
	}
	const refuse = `
		CREATE FUNCTION public.refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$
		DECLARE
		  change record;
		BEGIN
		  FOR change IN SELECT command_tag, object_identity FROM pg_event_trigger_ddl_commands() LOOP
		    RAISE '% %', change.command_tag, change.object_identity;
		  END LOOP;
		END
		$$;
		CREATE EVENT TRIGGER refuse ON ddl_command_end EXECUTE FUNCTION public.refuse()`
	pgtest.Exec(t, admin, refuse)
	roles := func() (settings string) {
		t.Helper()
		err := admin.QueryRow(t.Context(), `
			SELECT string_agg(rolname || s.setconfig::text, E'\n' ORDER BY rolname)
			  FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole
			 WHERE rolname IN ('video_service', 'catalog_service') AND s.setdatabase = 0`).Scan(&settings)
		if err != nil {
			t.Fatal(err)
		}
		return settings
	}
	before := roles()
	reader := pgtest.Begin(t, admin)
	defer reader.Rollback(t.Context())
	pgtest.Exec(t, reader, `LOCK TABLE video.outbox, catalog.inbox IN ACCESS SHARE MODE`)
	for s, want := range history {
		if got := applied(s); !slices.Equal(got, want) {
			t.Errorf("history of %s: %v, want %v", s, got, want)
		}
		if err := migrations.Check(t.Context(), admin, s); !errors.Is(err, migrate.ErrBehind) {
			t.Errorf("without the library's numbers, %s is %v, want %v", s, err, migrate.ErrBehind)
		}
		if err := migrations.Up(t.Context(), db.Admin, s, slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
		}
		if got := applied(s); !slices.Equal(got, newest[s]) {
			t.Errorf("%s has applied %v, want %v", s, got, newest[s])
		}
	}
	if after := roles(); after != before {
		t.Errorf("roles before:\n%s\nafter:\n%s", before, after)
	}
}
