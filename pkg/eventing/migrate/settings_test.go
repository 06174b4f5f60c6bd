package migrate_test

import (
	"embed"
	"fmt"
	"log/slog"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/migrate"
)

//go:embed testdata/settings/*.sql
var settings embed.FS

// The defaults of a database, such as the statement_timeout of a managed server, do not hold for
// migrations. With such a limit, the creation of a large index would fail each time.
func TestMigrationsHaveTheirOwnSettings(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	admin := pg.Pool(t, pg.Admin)
	name := pgtest.Value[string](t, admin, `SELECT current_database()`)
	want := map[string]string{
		"statement_timeout": "0", "lock_timeout": "0", "idle_session_timeout": "0",
		"default_transaction_isolation": "read committed", "row_security": "on",
		"client_encoding": "UTF8", "standard_conforming_strings": "on",
		// A client that is gone, or stands still between two statements, would keep the locks of its migration.
		"idle_in_transaction_session_timeout": "3000",
		"tcp_keepalives_idle":                 "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3", "tcp_user_timeout": "60000",
	}
	if runtime.GOOS != "linux" {
		want["tcp_user_timeout"] = "0" // other systems have no such limit
	}
	for setting, value := range map[string]string{
		"statement_timeout": "120s", "lock_timeout": "121s", "idle_session_timeout": "122s", "idle_in_transaction_session_timeout": "123s",
		"default_transaction_isolation": "serializable", "row_security": "off",
		"client_encoding": "LATIN1", "standard_conforming_strings": "off",
	} {
		_, err := admin.Exec(t.Context(), fmt.Sprintf(`ALTER DATABASE %s SET %s = '%s'`, pgx.Identifier{name}.Sanitize(), setting, value))
		if err != nil {
			t.Fatal(err)
		}
	}
	schema := migrate.Schema{Name: "settings", Role: pgtest.Library.Role, Own: settings}
	if err := schema.Up(t.Context(), pg.Admin+"&pool_max_conns=7", slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	had := map[string]string{}
	rows, _ := admin.Query(t.Context(), `SELECT name, setting FROM settings.settings`)
	var setting, value string
	if _, err := pgx.ForEachRow(rows, []any{&setting, &value}, func() error {
		if _, checked := want[setting]; checked {
			had[setting] = value
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, had); diff != "" {
		t.Errorf("settings of a migration (-want +got):\n%s", diff)
	}
}
