package migrations_test

import (
	"bytes"
	"database/sql"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The defaults of a server or a database do not reach the services.
func TestRoleSettings(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin := db.Pool(t, db.Admin)
	var name string
	if err := admin.QueryRow(t.Context(), `SELECT current_database()`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{`synchronous_commit = off`, `default_transaction_isolation = 'repeatable read'`} {
		if _, err := admin.Exec(t.Context(), `ALTER DATABASE `+pgx.Identifier{name}.Sanitize()+` SET `+setting); err != nil {
			t.Fatal(err)
		}
	}
	for _, url := range []string{db.VideoURL, db.CatalogURL} {
		var commit, isolation string
		err := db.Pool(t, url).QueryRow(t.Context(),
			`SELECT current_setting('synchronous_commit'), current_setting('default_transaction_isolation')`).Scan(&commit, &isolation)
		if err != nil || commit != "on" || isolation != "read committed" {
			t.Errorf("synchronous_commit %q, isolation %q (%v)", commit, isolation, err)
		}
	}
}

// The index of titles exists if the extension does, also after a build that did not
// end; without the extension nothing fails.
func TestSearchIndex(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	db, err := sql.Open("pgx", pg.Admin)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	state := func() (s string) {
		t.Helper()
		const read = `SELECT coalesce((SELECT CASE WHEN indisvalid THEN 'valid' ELSE 'invalid' END FROM pg_index
			WHERE indexrelid = to_regclass('catalog.video_projection_by_title')), 'none')`
		if err := db.QueryRowContext(t.Context(), read).Scan(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	var available bool
	if err := db.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'pg_trgm')`).Scan(&available); err != nil {
		t.Fatal(err)
	}
	want := "none"
	if available {
		want = "valid"
	}
	if s := state(); s != want {
		t.Errorf("after the migrations the index is %s, want %s", s, want)
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE pg_index SET indisvalid = false
		WHERE indexrelid = to_regclass('catalog.video_projection_by_title')`); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := migrations.SearchIndex(t.Context(), db, "pg_trgm", log); err != nil || state() != want {
			t.Errorf("once more: %v, the index is %s", err, state())
		}
	}
	if err := migrations.SearchIndex(t.Context(), db, "no_such_extension", log); err != nil || !strings.Contains(logged.String(), "no_such_extension") {
		t.Errorf("without the extension: %v, logged %q", err, logged.String())
	}
}

// A service is unready on an older schema, and says which command brings it up to date.
func TestCheckNamesTheCommand(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin := db.Pool(t, db.Admin)
	if err := migrations.Check(t.Context(), admin, migrations.Video); err != nil {
		t.Errorf("the newest schema: %v", err)
	}
	if _, err := admin.Exec(t.Context(), `DELETE FROM video.goose_db_version WHERE version_id > 0`); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Check(t.Context(), admin, migrations.Video); err == nil || !strings.Contains(err.Error(), "`video migrate`") {
		t.Errorf("an older schema: %v, want the command that updates it", err)
	}
}

// TestARestoredOutboxHasRoomForPlans rewrites the outbox's file, as a restore does, and
// migrates again, as the procedure for a restore says.
func TestARestoredOutboxHasRoomForPlans(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	admin := pg.Pool(t, pg.Admin)
	pages := func() (n int) {
		t.Helper()
		err := admin.QueryRow(t.Context(), `SELECT pg_relation_size('video.outbox') / current_setting('block_size')::int`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	created := pages()
	if _, err := admin.Exec(t.Context(), `VACUUM FULL video.outbox`); err != nil {
		t.Fatal(err)
	}
	rewritten := pages()
	for range 2 { // the second one has nothing to do
		if err := migrations.Up(t.Context(), pg.Admin, migrations.Video, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	if n := pages(); created < 64 || rewritten >= 64 || n != created {
		t.Errorf("%d pages when it was created, %d after it was rewritten, and %d after it was migrated again", created, rewritten, n)
	}
	var rows int
	if err := admin.QueryRow(t.Context(), `SELECT count(*) FROM video.outbox`).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows, %v", rows, err)
	}
}
