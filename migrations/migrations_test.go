package migrations_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/migrations"
	"example.com/lockstep/pkg/eventing/migrate"
)

func TestMain(m *testing.M) { pairtest.Main(m) }

// The defaults of a server or a database do not reach the services.
func TestRoleSettings(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	admin := db.Pool(t, db.Admin)
	name := pgtest.Value[string](t, admin, `SELECT current_database()`)
	for _, setting := range []string{`synchronous_commit = off`, `default_transaction_isolation = 'repeatable read'`} {
		pgtest.Exec(t, admin, `ALTER DATABASE `+pgx.Identifier{name}.Sanitize()+` SET `+setting)
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

// The server ends the sessions of an instance that is gone without a word, so that they do not count
// against its limit of connections for two hours.
func TestSessionsOfALostInstanceEnd(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	for _, url := range []string{db.VideoURL, db.CatalogURL} {
		var got []string
		err := db.Pool(t, url).QueryRow(t.Context(), `
			SELECT array(SELECT c FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) AS c
			              WHERE r.rolname = session_user AND s.setdatabase = 0 AND c LIKE 'tcp\_%' ORDER BY c)`).Scan(&got)
		want := []string{"tcp_keepalives_count=3", "tcp_keepalives_idle=30", "tcp_keepalives_interval=10", "tcp_user_timeout=60000"}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("the settings of the role are %q, %v; want %q", got, err, want)
		}
	}
}

// Of large tables Postgres would compile a search, and a list without statistics, or run it in several processes.
func TestServicesHaveNoPlansForReports(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	for _, url := range []string{db.VideoURL, db.CatalogURL} {
		var jit, workers string
		err := db.Pool(t, url).QueryRow(t.Context(),
			`SELECT current_setting('jit'), current_setting('max_parallel_workers_per_gather')`).Scan(&jit, &workers)
		if err != nil || jit != "off" || workers != "0" {
			t.Errorf("jit is %s, and the workers of a statement %s (%v)", jit, workers, err)
		}
	}
}

func TestServiceRolesSeeTheirOwnSchemaOnly(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	roles := []struct{ name, url, own, foreign string }{
		{"video", db.VideoURL, "video.outbox", "catalog.inbox"},
		{"catalog", db.CatalogURL, "catalog.inbox", "video.outbox"},
	}
	for _, r := range roles {
		pool := db.Pool(t, r.url)
		if _, err := pool.Exec(t.Context(), "SELECT FROM "+r.own); err != nil {
			t.Errorf("%s reads %s: %v", r.name, r.own, err)
		}
		_, err := pool.Exec(t.Context(), "SELECT FROM "+r.foreign)
		var denied *pgconn.PgError
		if !errors.As(err, &denied) || denied.Code != "42501" {
			t.Errorf("%s reads %s: %v, want permission denied", r.name, r.foreign, err)
		}
	}
}

// The index of titles exists if the extension does, also after a build that did not
// end; without the extension nothing fails. During a rebuild the index stays as it is.
func TestSearchIndex(t *testing.T) {
	t.Parallel()
	pg := pairtest.New(t)
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
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE catalog.rebuild_state ()`); err != nil {
		t.Fatal(err)
	}
	// A rebuild exchanges tables with the same indexes only.
	broken := strings.ReplaceAll(want, "valid", "invalid")
	if err := migrations.SearchIndex(t.Context(), db, "pg_trgm", log); err != nil || state() != broken {
		t.Errorf("during a rebuild: %v, the index is %s, want %s", err, state(), broken)
	}
	if available && !strings.Contains(logged.String(), "a rebuild of the read model is open") {
		t.Errorf("during a rebuild: logged %q", logged.String())
	}
	if _, err := db.ExecContext(t.Context(), `DROP TABLE catalog.rebuild_state`); err != nil {
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

// No batch of the consumer moves the entries of earlier batches into the index, and no search reads them one by one.
func TestNewTitlesAreInTheIndexAtOnce(t *testing.T) {
	t.Parallel()
	pg := pairtest.New(t)
	admin := pg.Pool(t, pg.Admin)
	if !pgtest.Value[bool](t, admin, `SELECT to_regclass('catalog.video_projection_by_title') IS NOT NULL`) {
		t.Skip("this server has no pg_trgm")
	}
	pgtest.Exec(t, admin, `INSERT INTO catalog.video_projection (video_id, title, version, updated_at)
		SELECT gen_random_uuid(), 'Lockstep in one minute', 1, now() FROM generate_series(1, 200)`)
	if pages := pgtest.Value[int64](t, admin, `SELECT gin_clean_pending_list('catalog.video_projection_by_title')`); pages != 0 {
		t.Errorf("%d pages of new entries wait outside the index", pages)
	}
}

// The index of titles is optional: the migrations succeed in a database that does not let the owner of the table use the
// extension's schema.
func TestARefusedSearchIndexEndsNoMigration(t *testing.T) {
	t.Parallel()
	pg := pairtest.New(t)
	var available bool
	err := pg.Pool(t, pg.Admin).QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_trgm')`).Scan(&available)
	if err != nil || !available {
		t.Skip("the server lacks pg_trgm: ", err)
	}
	_, err = pg.Pool(t, pg.Admin).Exec(t.Context(), `
		DROP INDEX catalog.video_projection_by_title;
		GRANT CREATE ON SCHEMA catalog TO catalog_service;
		ALTER TABLE catalog.video_projection OWNER TO catalog_service;
		REVOKE ALL ON SCHEMA public FROM PUBLIC`)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", pg.CatalogURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var logged bytes.Buffer
	err = migrations.SearchIndex(t.Context(), db, "pg_trgm", slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil || !strings.Contains(logged.String(), "permission denied for schema public") {
		t.Errorf("%v, logged %q", err, logged.String())
	}
}

// The index of titles is optional: if its build takes too long, the migrations succeed, and the next run
// builds it.
func TestASlowSearchIndexEndsNoMigration(t *testing.T) {
	t.Parallel()
	pg := pairtest.New(t)
	admin := pg.Pool(t, pg.Admin)
	valid := func() (is bool) {
		t.Helper()
		const read = `SELECT coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('catalog.video_projection_by_title')), false)`
		return pgtest.Value[bool](t, admin, read)
	}
	if !valid() {
		t.Skip("the server lacks pg_trgm")
	}
	pgtest.Exec(t, admin, `DROP INDEX catalog.video_projection_by_title`)
	writer, err := admin.Begin(t.Context()) // the build waits for its end
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, writer, `LOCK TABLE catalog.video_projection IN ROW EXCLUSIVE MODE`)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var logged bytes.Buffer
	err = migrations.IndexTitles(ctx, pg.Admin, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil || !strings.Contains(logged.String(), "no index yet") || valid() {
		t.Errorf("%v, logged %q", err, logged.String())
	}
	pgtest.End(t, writer.Rollback)
	// The session that was given up may hold its lock for a moment longer, and the next run then leaves the build to it.
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !valid() {
		if err := migrations.IndexTitles(ctx, pg.Admin, slog.New(slog.DiscardHandler)); err != nil || ctx.Err() != nil {
			t.Fatalf("the next run: %v, %v", err, ctx.Err())
		}
	}
}

// A time limit of the database ends neither the migrations nor the build of the index of titles.
func TestLimitsOfTheDatabaseDoNotEndMigrations(t *testing.T) {
	t.Parallel()
	pg := pairtest.New(t)
	_, err := pg.Pool(t, pg.Admin).Exec(t.Context(), `
		DROP INDEX IF EXISTS catalog.video_projection_by_title;
		INSERT INTO catalog.video_projection (video_id, title, version, updated_at)
		SELECT gen_random_uuid(), repeat(md5(n::text), 6), 1, now() FROM generate_series(1, 10000) AS n;
		DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET statement_timeout = 200', current_database()); END $$`)
	if err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(t.Context(), pg.Admin, migrations.Catalog, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}

// A service is unready on an older schema, and says which command brings it up to date. It is also
// unready with the URL of the administrator, because its statements would find no table.
func TestCheckNamesTheCause(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	admin := db.Pool(t, db.Admin)
	for _, s := range []migrations.Service{migrations.Video, migrations.Catalog} {
		if err := migrations.Check(t.Context(), db.Pool(t, db.As(t, s.Role())), s); err != nil {
			t.Errorf("the newest schema of %s: %v", s, err)
		}
		if err := migrations.Check(t.Context(), admin, s); !errors.Is(err, migrate.ErrRole) {
			t.Errorf("%s with the administrator's URL: %v, want %v", s, err, migrate.ErrRole)
		}
	}
	pgtest.Exec(t, admin, `DELETE FROM video.goose_db_version WHERE version_id > 0`)
	if err := migrations.Check(t.Context(), admin, migrations.Video); err == nil || !strings.Contains(err.Error(), "`video migrate`") {
		t.Errorf("an older schema: %v, want the command that updates it", err)
	}
}

// A changed row stays in its page, so that the change writes no index.
func TestChangedRowsStayInTheirPages(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	admin := db.Pool(t, db.Admin)
	for _, table := range []string{"video.videos", "catalog.video_projection"} {
		_, err := admin.Exec(t.Context(), `
			INSERT INTO `+table+` (video_id, uploader_id, title, description, version, created_at, updated_at)
			SELECT gen_random_uuid(), gen_random_uuid(), 'title', repeat('x', 100), 1, now(), now() FROM generate_series(1, 1000)`)
		if err != nil {
			t.Fatal(err)
		}
		const page = `(ctid::text::point)[0]`
		var changed, moved int
		err = admin.QueryRow(t.Context(), `
			WITH before AS (SELECT video_id, `+page+` AS page FROM `+table+`), changed AS (
				UPDATE `+table+` SET description = repeat('y', 100), version = 2 WHERE `+page+` < 10 AND (ctid::text::point)[1] <= 2
				RETURNING video_id, `+page+` AS page)
			SELECT count(*), count(*) FILTER (WHERE c.page <> b.page) FROM changed c JOIN before b USING (video_id)`).Scan(&changed, &moved)
		if err != nil || changed != 20 || moved > 0 {
			t.Errorf("%s: %d rows changed, %d moved to another page, %v", table, changed, moved, err)
		}
	}
}
