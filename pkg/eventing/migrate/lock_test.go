package migrate_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"example.com/lockstep/internal/pgtest"
)

// A transaction that only reads holds a table of a migration. The migration gives up, and says what
// has to be done. Then it runs.
func TestAMigrationBehindAReader(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	admin, log := pg.Pool(t, pg.Admin), slog.New(slog.DiscardHandler)
	pgtest.Exec(t, admin, `DELETE FROM app.goose_db_version WHERE version_id = 211`)
	reader := pgtest.Begin(t, admin)
	defer func() { _ = reader.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, reader, `SELECT FROM app.outbox_relays`)
	if err := pgtest.Library.Up(t.Context(), pg.Admin, log); err == nil || !strings.Contains(err.Error(), "end that transaction") {
		t.Errorf("behind a reader: %v, want that the transaction has to end", err)
	}
	pgtest.End(t, reader.Rollback)
	if err := pgtest.Library.Up(t.Context(), pg.Admin, log); err != nil {
		t.Error(err)
	}
}
