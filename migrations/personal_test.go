package migrations_test

import (
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest/pairtest"
)

// Each table with a user's rows has its line in docs/data-protection.md.
func TestTablesWithUsersAreDocumented(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../docs/data-protection.md")
	if err != nil {
		t.Fatal(err)
	}
	db := pairtest.New(t)
	rows, _ := db.Pool(t, db.Admin).Query(t.Context(), `
		SELECT DISTINCT c.table_schema || '.' || c.table_name FROM information_schema.columns c JOIN information_schema.tables USING (table_schema, table_name)
		 WHERE c.table_schema IN ('video', 'catalog') AND c.column_name IN ('user_id', 'uploader_id') AND table_type = 'BASE TABLE'`)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 2 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	for _, table := range tables {
		if !strings.Contains(string(document), "`"+table+"`") {
			t.Errorf("docs/data-protection.md has no %s", table)
		}
	}
}
