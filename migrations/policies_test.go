package migrations_test

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/migrations"
)

// Schemas whose policies an earlier release has made get the policies of a new schema. These call
// the setting of the tenant directly: a subquery costs each statement its start.
func TestPoliciesOfEarlierReleases(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	admin := db.Pool(t, db.Admin)
	policies := func() (all string) {
		t.Helper()
		err := admin.QueryRow(t.Context(), `
			SELECT string_agg(concat_ws(' ', schemaname, tablename, policyname, qual, with_check), E'\n' ORDER BY 1)
			  FROM (SELECT schemaname, tablename, policyname, qual, with_check FROM pg_policies ORDER BY schemaname, tablename, policyname) p
			 WHERE schemaname IN ('video', 'catalog')`).Scan(&all)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	fresh := policies()
	if strings.Contains(fresh, "SELECT") || !strings.Contains(fresh, "one_tenant") {
		t.Errorf("policies of new schemas:\n%s", fresh)
	}
	source, err := os.ReadFile("../pkg/eventing/migrate/role/00104_policies_of_requests.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, down, _ := strings.Cut(string(source), "-- +goose Down\n")
	for _, s := range []migrations.Service{migrations.Video, migrations.Catalog} {
		_, err := admin.Exec(t.Context(), fmt.Sprintf(`
			BEGIN;
			SET LOCAL search_path = %s;
			%s;
			DELETE FROM goose_db_version WHERE version_id = 104;
			COMMIT`, s, down))
		if err != nil {
			t.Fatal(err)
		}
	}
	if earlier := policies(); strings.Count(earlier, "( SELECT current_setting") != strings.Count(fresh, "one_tenant") {
		t.Errorf("policies of an earlier release:\n%s", earlier)
	}
	for _, s := range []migrations.Service{migrations.Video, migrations.Catalog} {
		if err := migrations.Up(t.Context(), db.Admin, s, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	if after := policies(); after != fresh {
		t.Errorf("policies after the migration:\n%s\nwant those of new schemas:\n%s", after, fresh)
	}
}
